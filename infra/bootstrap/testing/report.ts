/** Reporter of Node's test runner: prints the cost of each file and the skipped tests, and keeps failures, beside the runner's own report. */
import { appendFileSync } from 'node:fs';
import path from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { inspect } from 'node:util';
import { endedCpuSeconds, usedCpuSeconds } from './cpu-time.js';

/** Number of files, the most expensive ones, that get a line each; the others are added up. */
const LINES = 25;
/** Stands for a file: until the first test begins, a shared process loads the files. */
const LOADING = '(loading)';
/** Maximum characters that are kept of one error. */
const ERROR_LENGTH = 3000;

type FailedTest = Extract<TestEvent, { type: 'test:fail' }>['data'];

/**
 * Prints the most expensive test files and the reasons of skipped tests. A test that is skipped without a reason fails the run: otherwise a test
 * that no step ever runs would look like one that lacks a tool on this machine. Appends each failed test, with its error, to the file that
 * `PIE_TEST_FAILURES` names; `lanes.js` prints that file at the end.
 */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const costs = new Costs();
  const skipped: { reason: string | undefined; name: string; file: string }[] = [];
  for await (const { type, data } of events) {
    if (type === 'test:dequeue') costs.begin(data);
    if (type === 'test:complete') costs.add(data);
    if (type === 'test:fail') keepFailure(data);
    if ((type === 'test:pass' || type === 'test:fail') && data.skip !== undefined && data.skip !== false) {
      const reason = typeof data.skip === 'string' && data.skip !== '' ? data.skip : undefined;
      skipped.push({ reason, name: data.name, file: relative(data.file) });
    }
  }
  const files = costs.files();
  keepCosts(files);
  yield* table(files);
  yield* skippedLines(skipped);
  if (skipped.some(({ reason }) => reason === undefined)) process.exitCode = 1;
}

function keepFailure({ name, file, line, details: { error } }: FailedTest): void {
  const failures = process.env.PIE_TEST_FAILURES;
  // A group that fails because its tests fail has no error of its own, and those tests are kept already.
  if (failures === undefined || ('failureType' in error && error.failureType === 'subtestsFailed')) return;
  // When the process of a file failed, the cause is only a text, and `error` itself has the exit code or signal.
  const text = inspect(error.cause instanceof Error ? error.cause : error);
  const shown = text.length > ERROR_LENGTH ? `${text.slice(0, ERROR_LENGTH)} …` : text;
  appendFileSync(failures, `\n${relative(file)}:${line}  ${name}\n${shown.replaceAll(/^(?=.)/gm, '  ')}\n`);
}

/** Durations in milliseconds, and processor time in seconds. */
interface Cost {
  ms: number;
  cpuSeconds: number;
}

/** Costs of test files. */
class Costs {
  /** With a process per file, the runner reports each file as a test whose name is the file. */
  readonly #processes = new Map<string, Cost>();
  /**
   * For a run in which all files share a process: the outermost tests of each file, and what the process and its descendants use meanwhile. What the
   * first test of a file uses before it first waits counts for the file before, because the events reach this reporter only then.
   */
  readonly #tests = new Map<string, Cost>();
  /** The file whose tests run in the shared process. */
  #current = LOADING;
  #usedCpuSeconds = 0;

  /** A test begins. */
  begin({ name, file, nesting }: { name: string; file?: string; nesting: number }): void {
    if (nesting > 0 || file === undefined || path.resolve(name) === file) return;
    const key = relative(file);
    if (key === this.#current) return;
    this.#charge();
    this.#current = key;
  }

  /** Charges the processor time since the last call to the current file. The time of an ended process is lost if its parent did not wait for it. */
  #charge(): void {
    const used = usedCpuSeconds();
    this.#ofTests(this.#current).cpuSeconds += Math.max(0, used - this.#usedCpuSeconds);
    this.#usedCpuSeconds = used;
  }

  #ofTests(file: string): Cost {
    const cost = this.#tests.get(file) ?? { ms: 0, cpuSeconds: 0 };
    this.#tests.set(file, cost);
    return cost;
  }

  /** A test ends. */
  add({
    name,
    file,
    nesting,
    details,
  }: {
    name: string;
    file?: string;
    nesting: number;
    details: { duration_ms: number };
  }): void {
    if (nesting > 0 || file === undefined) return;
    const key = relative(file);
    const ms = details.duration_ms;
    // The runner reports a file when its process has ended, so that `endedCpuSeconds` returns the time of that process.
    if (path.resolve(name) === file) this.#processes.set(key, { ms, cpuSeconds: endedCpuSeconds() });
    else this.#ofTests(key).ms += ms;
  }

  /** The costs of all files, the highest processor time first. To be called after the last test. */
  files(): (readonly [file: string, cost: Cost])[] {
    if (this.#processes.size === 0 && this.#tests.size > 0) this.#charge();
    return [...(this.#processes.size > 0 ? this.#processes : this.#tests)].sort(
      ([, a], [, b]) => b.cpuSeconds - a.cpuSeconds,
    );
  }
}

/** Appends the costs of files to the file that `PIE_TEST_COSTS` names, a line of JSON each. */
function keepCosts(files: readonly (readonly [file: string, cost: Cost])[]): void {
  const kept = process.env.PIE_TEST_COSTS;
  if (kept === undefined || kept === '') return;
  for (const [file, cost] of files) appendFileSync(kept, `${JSON.stringify({ file, ...cost })}\n`);
}

/** A line with the sums of all files, a line for each of the first files, and a line with the sums of the others. */
function* table(files: readonly (readonly [file: string, cost: Cost])[]): Generator<string> {
  if (files.length === 0) return;
  const line = (costs: readonly Cost[], name: string) => {
    const sum = (amount: (cost: Cost) => number) =>
      `${costs.reduce((s, cost) => s + amount(cost), 0).toFixed(1)} s`.padStart(9);
    return `${sum(({ cpuSeconds }) => cpuSeconds)}${sum(({ ms }) => ms / 1000)}  ${name}\n`;
  };
  const all = files.map(([, cost]) => cost);
  yield `\nTest files by processor time and duration:\n${line(all, `${files.filter(([file]) => file !== LOADING).length} files`)}`;
  for (const [file, cost] of files.slice(0, LINES)) yield line([cost], file);
  const others = all.slice(LINES);
  if (others.length > 0) yield line(others, `${others.length} others`);
}

function* skippedLines(
  skipped: readonly { reason: string | undefined; name: string; file: string }[],
): Generator<string> {
  if (skipped.length === 0) return;
  const counts = new Map<string, number>();
  for (const { reason } of skipped) if (reason !== undefined) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  yield `Skipped tests: ${skipped.length}\n`;
  for (const [reason, count] of counts) yield `${String(count).padStart(9)}  ${reason}\n`;
  for (const { reason, name, file } of skipped)
    if (reason === undefined) yield `           skipped without a reason, which is an error: ${name} (${file})\n`;
}

const relative = (file: string | undefined): string => (file === undefined ? '' : path.relative(process.cwd(), file));
