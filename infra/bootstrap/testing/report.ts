/** Reporter of Node's test runner: prints the cost of each file and the skipped tests, and keeps failures, beside the runner's own report. */
import { appendFileSync } from 'node:fs';
import path from 'node:path';
import type { TestEvent } from 'node:test/reporters';
import { inspect } from 'node:util';
import { endedCpuSeconds } from './cpu-time.js';

/** Number of files, the most expensive ones, that get a line each; the others are added up. */
const LINES = 25;
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
    if (type === 'test:complete') costs.add(data);
    if (type === 'test:fail') keepFailure(data);
    if ((type === 'test:pass' || type === 'test:fail') && data.skip !== undefined && data.skip !== false) {
      const reason = typeof data.skip === 'string' && data.skip !== '' ? data.skip : undefined;
      skipped.push({ reason, name: data.name, file: relative(data.file) });
    }
  }
  yield* costs.lines();
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

/** Costs of test files: durations in milliseconds and processor time in seconds. */
class Costs {
  /** With a process per file, the runner reports each file as a test whose name is the file. */
  readonly #processes = new Map<string, { readonly ms: number; readonly cpuSeconds: number }>();
  /** Durations of each file's outermost tests, for a run in which all files share a process. */
  readonly #tests = new Map<string, number>();

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
  }) {
    if (nesting > 0 || file === undefined) return;
    const key = relative(file);
    const ms = details.duration_ms;
    // The runner reports a file when its process has ended, so that `endedCpuSeconds` returns the time of that process.
    if (path.resolve(name) === file) this.#processes.set(key, { ms, cpuSeconds: endedCpuSeconds() });
    else this.#tests.set(key, (this.#tests.get(key) ?? 0) + ms);
  }

  *lines(): Generator<string> {
    if (this.#processes.size > 0) {
      const files = [...this.#processes].sort(([, a], [, b]) => b.cpuSeconds - a.cpuSeconds);
      yield* table(
        'processor time and duration',
        files.map(([file, { ms, cpuSeconds }]) => [file, [cpuSeconds, ms / 1000]]),
      );
    } else {
      const files = [...this.#tests].sort(([, a], [, b]) => b - a);
      yield* table(
        'duration',
        files.map(([file, ms]) => [file, [ms / 1000]]),
      );
    }
  }
}

/** A line with the sums of all files, a line for each of the first files, and a line with the sums of the others. */
function* table(
  costs: string,
  files: readonly (readonly [file: string, seconds: readonly number[]])[],
): Generator<string> {
  if (files.length === 0) return;
  const line = (seconds: readonly number[], name: string) =>
    `${seconds.map((each) => `${each.toFixed(1)} s`.padStart(9)).join('')}  ${name}\n`;
  yield `\nTest files by ${costs}:\n${line(sums(files), `${files.length} files`)}`;
  const others = files.slice(LINES);
  for (const [file, seconds] of files.slice(0, LINES)) yield line(seconds, file);
  if (others.length > 0) yield line(sums(others), `${others.length} others`);
}

const sums = (files: readonly (readonly [string, readonly number[]])[]): number[] =>
  files.reduce<number[]>((total, [, seconds]) => seconds.map((each, i) => each + (total[i] ?? 0)), []);

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
