import { setTimeout as sleep } from 'node:timers/promises';
import { loadConfig } from '#infra/config.ts';
import { connectRedis } from '#infra/redis.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench, BenchReport } from './bench.ts';
import { type PlatformProcess, processesOf, rootsOf } from './process-usage.ts';
import { readCommandCounts } from './redis-commands.ts';
import { format, formatSpread, type Spread, spread } from './statistics.ts';

/** The platform settles for this long after its start before its work is measured. */
const SETTLE_MS = 30_000;
const QUICK_SETTLE_MS = 5000;
/** Time over which the work of the idle platform is counted. */
const WINDOW_MS = 30_000;
const QUICK_WINDOW_MS = 6000;
const GB = 1e9;
const AIM_GB = 0.95;
const TOP_COMMANDS = 6;
const ALL_PROCESSES = 'all processes';
const CONFIG = '[runtime]\nspare_sandboxes = 1\n';

/** Memory and activity of one process, or of several with one name, while the platform is idle. */
interface Idle {
  readonly processes: number;
  /** Proportional memory right after the platform's start. */
  readonly startedBytes: number;
  /** Proportional memory after the platform has settled. */
  readonly settledBytes: number;
  readonly cpuMsPerSecond: number;
  readonly wakeUpsPerSecond: number;
}

interface Round {
  readonly idle: ReadonlyMap<string, Idle>;
  /** Redis commands a second by name. */
  readonly commands: ReadonlyMap<string, number>;
}

/** Memory and work of a platform without invocations. */
export const idle: Bench = {
  name: 'idle',
  summary: 'memory, CPU and wake-ups of every process of the idle platform, and its Redis commands',
  help: `Starts the platform with both bundled models, the bundled functions that it deploys before it serves, and one spare
sandbox, and invokes nothing. Reads the
proportional memory of every process right after the start and ${SETTLE_MS / 1000} s later, then counts CPU time, wake-ups and Redis commands for
${WINDOW_MS / 1000} s. A round is one platform. There is no baseline; the aim is ${AIM_GB} GB for all processes, and as few wake-ups as possible.`,
  quick: `It settles for ${QUICK_SETTLE_MS / 1000} s instead of ${SETTLE_MS / 1000}, and counts for ${QUICK_WINDOW_MS / 1000} s instead of ${WINDOW_MS / 1000}.`,
  async run({ repetitions, quick, progress }) {
    const rounds: Round[] = [];
    for (let i = 0; i < repetitions; i++) {
      progress(`round ${i + 1}: starting a platform`);
      const round = await measure(quick ? QUICK_SETTLE_MS : SETTLE_MS, quick ? QUICK_WINDOW_MS : WINDOW_MS);
      rounds.push(round);
      const total = round.idle.get(ALL_PROCESSES);
      progress(
        `round ${i + 1}: ${gigabytes(total?.startedBytes)} GB after the start, ${gigabytes(total?.settledBytes)} GB later, ${format(total?.cpuMsPerSecond ?? Number.NaN)} ms of CPU a second`,
      );
    }
    return report(rounds, quick);
  },
};

const gigabytes = (bytes = Number.NaN): string => format(bytes / GB, 3);

async function measure(settleMs: number, windowMs: number): Promise<Round> {
  // An undefined model takes the platform's default: both bundled models.
  await using platform = await Platform.start({ env: { PIE_MODEL: undefined }, config: CONFIG });
  const roots = rootsOf(platform);
  using redis = disposableClient(connectRedis(loadConfig(platform.environment)));
  const startedProcesses = processesOf(roots);
  await sleep(settleMs);
  const startMs = performance.now();
  const commandsBefore = await readCommandCounts(redis.client);
  const settledProcesses = processesOf(roots);
  await sleep(windowMs - (performance.now() - startMs));
  const seconds = (performance.now() - startMs) / 1000;
  const commandsAfter = await readCommandCounts(redis.client);
  const processesAfter = processesOf(roots);
  const commands = new Map<string, number>();
  for (const [name, count] of commandsAfter) {
    // The reading of the counts is a command, too.
    const calls = count - (commandsBefore.get(name) ?? 0) - (name === 'info' ? 1 : 0);
    if (calls > 0) commands.set(name, calls / seconds);
  }
  return { idle: idleOf(startedProcesses, settledProcesses, processesAfter, seconds), commands };
}

const disposableClient = (client: ReturnType<typeof connectRedis>) => ({
  client,
  [Symbol.dispose]: () => client.disconnect(),
});

function idleOf(
  started: readonly PlatformProcess[],
  settled: readonly PlatformProcess[],
  after: readonly PlatformProcess[],
  seconds: number,
): Map<string, Idle> {
  const workBefore = new Map(settled.map((each) => [each.pid, each.work]));
  const idleWhere = (belongs: (each: PlatformProcess) => boolean): Idle => {
    const matching = (processes: readonly PlatformProcess[]) => processes.filter(belongs);
    const bytes = (processes: readonly PlatformProcess[]) =>
      matching(processes).reduce((sum, { pssBytes }) => sum + pssBytes, 0);
    const rate = (value: (work: PlatformProcess['work']) => number) =>
      matching(after).reduce((sum, { pid, work }) => sum + value(work) - value(workBefore.get(pid) ?? NO_WORK), 0) /
      seconds;
    return {
      processes: matching(after).length,
      startedBytes: bytes(started),
      settledBytes: bytes(settled),
      cpuMsPerSecond: rate(({ cpuUs }) => cpuUs / 1000),
      wakeUpsPerSecond: rate(({ waits }) => waits),
    };
  };
  const names = new Set([...started, ...settled, ...after].map(({ name }) => name));
  return new Map([
    ...[...names].sort().map((name) => [name, idleWhere((each) => each.name === name)] as const),
    [ALL_PROCESSES, idleWhere(() => true)],
  ]);
}

const NO_WORK = { cpuUs: 0, waits: 0 };

function report(rounds: readonly Round[], quick: boolean): BenchReport {
  const names = [...new Set(rounds.flatMap(({ idle }) => [...idle.keys()]))].filter((name) => name !== ALL_PROCESSES);
  const spreadOf = (name: string, value: (idle: Idle) => number): Spread =>
    spread(rounds.map((round) => value(round.idle.get(name) ?? NO_PROCESSES)));
  const commandNames = new Set(rounds.flatMap(({ commands }) => [...commands.keys()]));
  const commandRates = [...commandNames].map((name) => ({
    name,
    rate: spread(rounds.map(({ commands }) => commands.get(name) ?? 0)),
  }));
  commandRates.sort((a, b) => b.rate.median - a.rate.median);
  const totalRate = spread(rounds.map(({ commands }) => [...commands.values()].reduce((sum, rate) => sum + rate, 0)));
  const [settle, window] = quick ? [QUICK_SETTLE_MS, QUICK_WINDOW_MS] : [SETTLE_MS, WINDOW_MS];
  return {
    title: 'The idle platform: both bundled models, one spare sandbox, no invocation',
    header: [
      'process',
      'count',
      'MB after the start',
      `MB ${settle / 1000} s later`,
      'aim',
      'CPU ms a second',
      'wake-ups a second',
    ],
    rows: [...names, ALL_PROCESSES].map((name) => [
      name,
      formatCount(spreadOf(name, ({ processes }) => processes)),
      formatSpread(
        spreadOf(name, ({ startedBytes }) => startedBytes / 1e6),
        0,
      ),
      formatSpread(
        spreadOf(name, ({ settledBytes }) => settledBytes / 1e6),
        0,
      ),
      name === ALL_PROCESSES ? `${AIM_GB * 1000}` : '',
      formatSpread(spreadOf(name, ({ cpuMsPerSecond }) => cpuMsPerSecond)),
      formatSpread(
        spreadOf(name, ({ wakeUpsPerSecond }) => wakeUpsPerSecond),
        1,
      ),
    ]),
    notes: [
      `Median (min–max) of ${rounds.length} platforms. Memory is proportional (PSS): a page that several processes map counts once in the sum. 1 MB is 1,000,000 bytes.`,
      'PSS divides a shared page among all processes of the machine that map it. Other processes with the same Node binary, this benchmark included, therefore lower the sum: the binary has 30 MB or more.',
      `CPU and wake-ups are counted for ${window / 1000} s after the platform has settled, from the kernel scheduler's counts of all threads; a wake-up follows each voluntary wait.`,
      `Redis commands a second, those of scripts included: ${formatSpread(totalRate, 1)}; most often ${commandRates
        .slice(0, TOP_COMMANDS)
        .map(({ name, rate }) => `${name} ${format(rate.median, 1)}`)
        .join(', ')}.`,
    ],
    data: rounds.map(({ idle, commands }) => ({
      idle: Object.fromEntries(idle),
      commands: Object.fromEntries(commands),
    })),
  };
}

const NO_PROCESSES: Idle = { processes: 0, startedBytes: 0, settledBytes: 0, cpuMsPerSecond: 0, wakeUpsPerSecond: 0 };

const formatCount = ({ min, max }: Spread): string => (min === max ? String(min) : `${min}–${max}`);
