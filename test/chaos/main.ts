/** `npm run chaos`: kills the runtime, or lets machines fail, again and again, and checks how all invocations end. */
import cliProgress from 'cli-progress';
import { readArguments, refuseArguments } from '#infra/arguments.ts';
import { faultRun, startMachines } from './fault-runs.ts';
import { type KillRun, killRun, startPlatform } from './kill-runs.ts';

const USAGE = `Usage: npm run chaos -- [options]

Kills the runtime again and again, in every phase of an invocation's life, and checks how each invocation ends.

  --machines  inject seeded faults into machines in network namespaces instead (needs root); prints one line a schedule
  --runs N    number of kills, or of schedules (200)
  --seed N    seed of the first run; each run has the next (1)
  --help      this text
`;

const { values } = readArguments(USAGE, {
  options: {
    machines: { type: 'boolean', default: false },
    runs: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
  },
});
/** Longest time until the platform detects a runtime's death and tells its clients. */
const KNOWN_WITHIN_MS = 3000;
/** Longest time from a fault to the next success where capacity is left. */
const NEXT_WITHIN_MS = 5000;
const runs = Number(values.runs);
const firstSeed = Number(values.seed);
if (!(Number.isInteger(runs) && runs > 0)) refuseArguments(USAGE, `--runs ${values.runs} is not a number of runs.`);
if (!(Number.isInteger(firstSeed) && firstSeed >= 0)) refuseArguments(USAGE, `--seed ${values.seed} is not a seed.`);
// An interrupted run, too, leaves no networks and disks behind: they are removed on exit.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
if (values.machines) await faults();
else await kills();

/** Prints one line for each schedule of faults. */
async function faults(): Promise<void> {
  await using machines = await startMachines();
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    try {
      const run = await faultRun(machines, seed);
      const isLate = run.leavesCapacity && run.nextSuccessMs.some((ms) => ms > NEXT_WITHIN_MS);
      console.log(JSON.stringify({ ...run, ...(isLate && { late: true }) }));
      if (isLate) process.exitCode = 1;
    } catch (error) {
      console.log(JSON.stringify({ seed, failure: error instanceof Error ? error.message : String(error) }));
      process.exitCode = 1;
    }
  }
}

async function kills(): Promise<void> {
  await using platform = await startPlatform();
  const bar = new cliProgress.SingleBar({
    format: 'kills [{bar}] {value}/{total} {eta_formatted} left',
    stream: process.stderr,
    noTTYOutput: true,
    notTTYSchedule: 10_000,
  });
  bar.start(runs, 0);
  const finishedRuns: KillRun[] = [];
  const failures: string[] = [];
  for (let seed = firstSeed; seed < firstSeed + runs; seed++) {
    try {
      const run = await killRun(platform, seed);
      finishedRuns.push(run);
      for (const ms of run.knownAfterMs)
        if (ms > KNOWN_WITHIN_MS) failures.push(`seed ${seed}: clients learned of the runtime's death after ${ms} ms`);
    } catch (error) {
      failures.push(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`);
    }
    bar.increment();
  }
  bar.stop();
  const detectionMs = finishedRuns.flatMap(({ knownAfterMs }) => knownAfterMs).sort((a, b) => a - b);
  const endings: Record<string, number> = {};
  for (const ending of finishedRuns.flatMap((run) => run.endings)) endings[ending] = (endings[ending] ?? 0) + 1;
  console.log(
    JSON.stringify(
      {
        runs: finishedRuns.length,
        hits: finishedRuns.filter(({ hit }) => hit > 0).length,
        endings,
        knownAfterMs: { median: detectionMs[detectionMs.length >> 1], most: detectionMs.at(-1) },
        failures,
      },
      null,
      2,
    ),
  );
  process.exitCode = failures.length === 0 ? 0 : 1;
}
