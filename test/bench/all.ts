import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { ROOT } from '#test/harness/platform.ts';
import { readProcessorTime } from './proc.ts';
import { type ExpectedSuite, type FinishedSuite, secondsLeft } from './progress.ts';
import { reportOf } from './report/markdown.ts';
import type { Machine, Results, Suite } from './report/results.ts';

/**
 * Suites in the order in which they run. `seconds` is the time of a quick run of one round on two cores, used to estimate the time left.
 * The first suites are those of the papers.
 */
export const SUITES: readonly ExpectedSuite[] = [
  { name: 'agents', seconds: 36 },
  { name: 'stacked', seconds: 31 },
  { name: 'techniques', seconds: 40 },
  { name: 'serve', seconds: 40 },
  { name: 'fairness', seconds: 32 },
  { name: 'http', seconds: 26 },
  { name: 'launch', seconds: 32 },
  { name: 'generate', seconds: 26 },
  { name: 'calls', seconds: 26 },
  { name: 'tax', seconds: 30 },
  { name: 'prefix', seconds: 25 },
  { name: 'batching', seconds: 20 },
  { name: 'constrained', seconds: 20 },
  { name: 'forks', seconds: 13 },
  { name: 'concurrency', seconds: 20 },
  { name: 'idle', seconds: 27 },
  { name: 'placement', seconds: 9 },
  { name: 'isolation', seconds: 27 },
  { name: 'flood', seconds: 23 },
  { name: 'hoarders', seconds: 82 },
  { name: 'classes', seconds: 38 },
  { name: 'admission', seconds: 16 },
  { name: 'fleet', seconds: 30 },
  { name: 'pressure', seconds: 22 },
  { name: 'scaling', seconds: 30 },
  { name: 'index', seconds: 13 },
  { name: 'workflow', seconds: 34 },
  { name: 'plans', seconds: 16 },
  { name: 'engine', seconds: 42 },
  { name: 'tenants', seconds: 34 },
  { name: 'soak', seconds: 36 },
];

/** Limit on a quick run of one round without named suites: no suite begins after it, and a suite that still runs is ended. */
const QUICK_MS = 15 * 60_000;
/** Time, before each suite, over which the machine's other load is measured. The load average would still include the previous suite. */
const IDLE_MS = 1000;
/** Limit on one suite in any other run. */
const SUITE_MS = 3_600_000;

export interface AllOptions {
  readonly repetitions: number;
  readonly quick: boolean;
  /** Names of the suites to run; all suites when empty. */
  readonly only: readonly string[];
  /** Folder of the results, the report and the images. */
  readonly out: string;
  /** Results of an earlier run. */
  readonly against?: string | undefined;
  /** Keeps the suites that an earlier run into `out` has measured, on the same machine with the same options, and runs the other suites. */
  readonly resume: boolean;
  readonly progress: (line: string) => void;
  /** Runs before the first suite; its time counts for none of them. */
  readonly prepare?: () => Promise<void>;
}

/** A refusal of the options, before anything is measured. */
export class OptionError extends Error {}

/**
 * Runs the suites one after another, each in a process of its own, and writes `results.json`, `report.md` and images. A suite that fails
 * or does not run is part of the report.
 * @param list all known suites
 * @returns the number of suites that failed
 */
export async function runSuites(options: AllOptions, list = SUITES): Promise<number> {
  const { quick, repetitions, out, progress } = options;
  const unknown = options.only.find((name) => !list.some((suite) => suite.name === name));
  if (unknown !== undefined) throw new OptionError(`There is no suite "${unknown}".`);
  // Read the earlier run first: a wrong file must not cost hours of work.
  const before = options.against === undefined ? undefined : await readResults(options.against);
  const machine = machineFacts();
  const file = path.join(out, 'results.json');
  const earlier = options.resume ? await readResumable(file, { machine, quick, repetitions }) : undefined;
  if (options.only.length === 0) await options.prepare?.();
  const startedAt = earlier?.startedAt ?? new Date().toISOString();
  const startMs = performance.now();
  const suites: Suite[] = [];
  const writeResults = async (): Promise<Results> => {
    const seconds = (earlier?.seconds ?? 0) + (performance.now() - startMs) / 1000;
    const notReached = (earlier?.suites ?? []).filter(({ name }) => !suites.some((suite) => suite.name === name));
    const results: Results = {
      format: 1,
      startedAt,
      seconds,
      quick,
      repetitions,
      machine,
      suites: [...suites, ...notReached],
    };
    await mkdir(out, { recursive: true });
    await writeFile(file, `${JSON.stringify(results)}\n`);
    return results;
  };
  const isBounded = quick && repetitions === 1 && options.only.length === 0;
  const isNamed = (name: string) => options.only.length === 0 || options.only.includes(name);
  const keptSuiteOf = (name: string) => {
    const earlierSuite = earlier?.suites.find((suite) => suite.name === name);
    return earlierSuite !== undefined && (earlierSuite.outcome === 'ran' || !isNamed(name)) ? earlierSuite : undefined;
  };
  const toRun = expectedOf(list, options, before).filter(
    ({ name }) => isNamed(name) && keptSuiteOf(name) === undefined,
  );
  const done: FinishedSuite[] = [];
  for (const { name } of list) {
    // A time limit of a process is a whole number.
    const leftMs = isBounded ? Math.ceil(QUICK_MS - (performance.now() - startMs)) : SUITE_MS;
    const keptSuite = keptSuiteOf(name);
    if (keptSuite !== undefined) {
      suites.push(keptSuite);
    } else if (!isNamed(name)) {
      if (earlier !== undefined) suites.push({ name, outcome: 'not run', reason: 'it was not named' });
    } else if (leftMs <= 0) {
      const reason = 'the fifteen minutes of a quick run were over; `--resume` runs the rest';
      suites.push({ name, outcome: 'not run', reason });
    } else {
      const label = `[${done.length + 1}/${toRun.length}] ${name}`;
      const seconds = secondsLeft(done, toRun.slice(done.length));
      const soFar = `${minutes(performance.now() - startMs)} min so far`;
      progress(`${label}: ${seconds === undefined ? soFar : `about ${Math.ceil(seconds / 60)} min left`}`);
      const suiteStartMs = performance.now();
      const suite = await runSuite(name, options, leftMs);
      suites.push(suite);
      const suiteSeconds = (performance.now() - suiteStartMs) / 1000;
      done.push({ expected: toRun[done.length]?.seconds, seconds: suiteSeconds });
      progress(`${label}: ${suite.outcome}, ${suiteSeconds.toFixed(0)} s`);
      // A run takes hours: a failure must not lose the suites that have run.
      await writeResults();
    }
  }
  const results = await writeResults();
  const { markdown, images } = reportOf(results, '', before);
  await writeFile(path.join(out, 'report.md'), `# Benchmarks\n\n${markdown}`);
  for (const [name, svg] of images) await writeFile(path.join(out, name), svg);
  progress(`wrote ${path.join(out, 'report.md')}, results.json and ${images.size} images`);
  return suites.filter(({ outcome }) => outcome === 'failed').length;
}

/** The suites with the expected seconds of each: those of an earlier run of the same kind, else, in a quick run, those of `list`. */
function expectedOf(
  list: readonly ExpectedSuite[],
  { quick, repetitions }: AllOptions,
  before: Results | undefined,
): readonly ExpectedSuite[] {
  const isAlike = before?.quick === quick && before.repetitions === repetitions;
  return list.map(({ name, seconds }) => {
    const suite = isAlike ? before.suites.find((each) => each.name === name) : undefined;
    if (suite?.outcome === 'ran') return { name, seconds: suite.seconds };
    return quick && seconds !== undefined ? { name, seconds: seconds * repetitions } : { name };
  });
}

/** @throws OptionError when the file cannot be read, or holds no results of this format */
export async function readResults(file: string): Promise<Results> {
  let results: Partial<Results> | null;
  try {
    results = JSON.parse(await readFile(file, 'utf8')) as Partial<Results> | null;
  } catch (cause) {
    throw new OptionError(`No results of an earlier run can be read from ${file}.`, { cause });
  }
  if (results?.format !== 1 || !Array.isArray(results.suites))
    throw new OptionError(`${file} holds no results of \`pie bench all\` of this version.`);
  return results as Results;
}

/** @throws OptionError when the file holds results of another machine or kind of run: one report cannot show the suites of both */
async function readResumable(
  file: string,
  now: Pick<Results, 'machine' | 'quick' | 'repetitions'>,
): Promise<Results | undefined> {
  // A run that ended during its first suite wrote no results.
  if (!existsSync(file)) return undefined;
  const earlier = await readResults(file);
  for (const [what, before, after] of [
    ['processor', earlier.machine.cpu, now.machine.cpu],
    ['number of cores', earlier.machine.cores, now.machine.cores],
    ['--quick', earlier.quick, now.quick],
    ['--repetitions', earlier.repetitions, now.repetitions],
  ])
    if (before !== after)
      throw new OptionError(`${file} cannot be resumed: ${what} was ${before} and is ${after}. Choose another --out.`);
  return earlier;
}

async function runSuite(name: string, { quick, repetitions }: AllOptions, limitMs: number): Promise<Suite> {
  const args = [path.join(import.meta.dirname, 'main.ts'), name, '--json', '-n', String(repetitions)];
  const idleStart = readProcessorTime();
  await setTimeout(IDLE_MS);
  const before = readProcessorTime();
  const busyBefore = 1 - (before.idle - idleStart.idle) / Math.max(1, before.all - idleStart.all);
  const startMs = performance.now();
  // The suite's platform ends with its process.
  const child = spawn(process.execPath, [...args, ...(quick ? ['--quick'] : [])], {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: limitMs,
    killSignal: 'SIGKILL',
  });
  const ended = new Promise<string>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve(signal === null ? `exit code ${code}` : `ended by ${signal}`));
  });
  // The terminal sends Ctrl-C to the suite, too; a SIGTERM to this process alone would leave it running.
  const terminate = () => {
    child.kill();
    process.exit(143);
  };
  process.once('SIGTERM', terminate);
  const [output, end] = await Promise.all([text(child.stdout), ended]).finally(() => process.off('SIGTERM', terminate));
  const elapsedMs = performance.now() - startMs;
  if (elapsedMs >= limitMs) return { name, outcome: 'not run', reason: `not done after ${minutes(limitMs)} minutes` };
  if (end !== 'exit code 0') return { name, outcome: 'failed', reason: `${end}; its error is on the terminal` };
  const { title, header, rows, notes, quick: cases, data } = JSON.parse(output);
  const after = readProcessorTime();
  const stolen = (after.stolen - before.stolen) / Math.max(1, after.all - before.all);
  return {
    name,
    outcome: 'ran',
    commit: commitOfClone(),
    seconds: elapsedMs / 1000,
    busyBefore,
    stolen,
    title,
    header,
    rows,
    notes,
    data,
    ...(cases !== undefined && { quick: cases }),
  };
}

const minutes = (ms: number): string => (ms / 60_000).toFixed(0);

function machineFacts(): Machine {
  const cpus = os.cpus();
  return {
    cpu: cpus[0]?.model ?? 'unknown',
    cores: cpus.length,
    memoryGib: Math.round(os.totalmem() / 2 ** 30),
    kernel: os.release(),
    node: process.versions.node,
    commit: commitOfClone(),
  };
}

function commitOfClone(): string {
  const git = (...args: readonly string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  try {
    const commit = git('rev-parse', '--short=12', 'HEAD');
    return git('status', '--porcelain', '--untracked-files=no') === '' ? commit : `${commit}+`;
  } catch {
    // An archive of the sources has no history.
    return 'unknown';
  }
}
