/** `npm run hostile`: the whole corpus, or some of it, against a platform with a canary. */
import { spawn } from 'node:child_process';
import cliProgress from 'cli-progress';
import { readArguments, refuseArguments } from '#infra/arguments.ts';
import { Arena, type Report } from './arena.ts';
import { type Attack, CLASSES } from './attack.ts';
import type { StoryTimes } from './canary.ts';
import { CORPUS } from './corpus/index.ts';

const USAGE = `Usage: npm run hostile -- [options]

Deploys and invokes components that attack the platform, while another tenant streams tokens and must not notice.

  --only TEXT    attacks whose name contains it (all)
  --class NAME   one of ${CLASSES.join(', ')}
  --list         prints the attacks and runs none
  --verbose      prints how each attack ended
  --help         this text

The tenant that streams is the canary. The report lists each attack beside which the canary's median time per token was more than 10 % longer than
alone, and the five attacks beside which its slowest story took longest per token. For comparison, the run begins with the canary beside one and two
processes that compute without end and use no platform.
The exit code is 1 when an attack harmed the platform or another tenant, ended in another way than expected, or left something behind.
`;

/** Stories that the canary streams alone before each attack. They are measured each time because a machine's speed changes within a run. */
const STORIES_ALONE = 8;
/** The report lists an attack above this ratio: the canary's median time per token beside the attack, divided by its median time alone. */
const SLOWED = 1.1;

const { values } = readArguments(USAGE, {
  options: {
    only: { type: 'string', default: '' },
    class: { type: 'string', default: '' },
    list: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
  },
});
if (values.class !== '' && !CLASSES.some((name) => name === values.class)) {
  refuseArguments(USAGE, `--class ${values.class} is not a class of attacks.`);
}
const attacks = CORPUS.filter(
  ({ name, kind }) => name.includes(values.only) && (values.class === '' || kind === values.class),
);
if (attacks.length === 0) refuseArguments(USAGE, `No attack has "${values.only}" in its name.`);

if (values.list) for (const { name, ends } of attacks) console.log(`${name}: ${ends.join(' or ')}`);
else process.exitCode = await run(attacks);

async function run(chosen: readonly Attack[]): Promise<number> {
  const bar = new cliProgress.SingleBar({
    format: 'attacks [{bar}] {value}/{total} {eta_formatted} left {name}',
    stream: process.stderr,
    noTTYOutput: true,
    notTTYSchedule: 10_000,
  });
  const failures: string[] = [];
  const endCounts: Record<string, number> = {};
  /** Ratios of the canary's times beside an attack to its times alone. */
  const canaries: { name: string; overAlone: number; slowestOverAlone: number; startOverAlone: number }[] = [];
  let arena = await Arena.start();
  const besideProcesses = [await besideSpinning(arena, 1), await besideSpinning(arena, 2)];
  bar.start(chosen.length, 0);
  for (const attack of chosen) {
    bar.update({ name: attack.name });
    try {
      const alone = await arena.measureAlone(STORIES_ALONE);
      const from = performance.now();
      const report = await arena.attack(attack);
      const unexpectedEnds = report.ends.filter((end) => !attack.ends.includes(end));
      if (unexpectedEnds.length > 0) failures.push(`${attack.name}: ${unexpectedEnds.join(', ')} (${report.message})`);
      for (const end of report.ends) endCounts[end] = (endCounts[end] ?? 0) + 1;
      const { tokenMs, slowestTokenMs, startMs } = report.canary;
      canaries.push({
        name: attack.name,
        overAlone: tokenMs / alone.tokenMs,
        slowestOverAlone: slowestTokenMs / alone.tokenMs,
        startOverAlone: startMs / alone.startMs,
      });
      if (values.verbose)
        console.log(lineOf(attack, report, alone, unexpectedEnds.length > 0, performance.now() - from));
    } catch (error) {
      failures.push(`${attack.name}: ${error instanceof Error ? error.message : String(error)}`);
      if (values.verbose) console.log(`HARM ${failures.at(-1)}`);
      await arena[Symbol.asyncDispose]();
      arena = await Arena.start();
    }
    bar.increment();
  }
  bar.stop();
  failures.push(...(await arena.leftBehind()).map((difference) => `left behind: ${difference}`));
  await arena[Symbol.asyncDispose]();
  const slowed = canaries.filter(({ overAlone }) => overAlone > SLOWED).sort((a, b) => b.overAlone - a.overAlone);
  const longest = canaries.toSorted((a, b) => b.slowestOverAlone - a.slowestOverAlone).slice(0, 5);
  console.log(
    JSON.stringify({ attacks: chosen.length, ends: endCounts, besideProcesses, slowed, longest, failures }, null, 2),
  );
  return failures.length === 0 ? 0 : 1;
}

/** The canary's median time per token beside `count` spinning processes, divided by its median alone. Each has a session, as the platform's have. */
async function besideSpinning(arena: Arena, count: number): Promise<number> {
  const alone = await arena.measureAlone(STORIES_ALONE * 2);
  const spinning = Array.from({ length: count }, () =>
    spawn(process.execPath, ['-e', 'for (;;);'], { detached: true, stdio: 'ignore' }),
  );
  try {
    return (await arena.measureAlone(STORIES_ALONE * 2)).tokenMs / alone.tokenMs;
  } finally {
    for (const child of spinning) child.kill('SIGKILL');
  }
}

function lineOf(attack: Attack, { ends, message, canary }: Report, alone: StoryTimes, isWrong: boolean, ms: number) {
  const tokens = `${alone.tokenMs.toFixed(2)} → ${canary.tokenMs.toFixed(2)}, at most ${canary.slowestTokenMs.toFixed(2)} ms a token`;
  const times = `${tokens}, first ${alone.startMs.toFixed(0)} → ${canary.startMs.toFixed(0)} ms`;
  return `${isWrong ? 'WRONG' : 'held '} ${attack.name}: ${ends.join(', ')} [${Math.round(ms)} ms; canary ${times}] ${message.slice(0, 160)}`;
}
