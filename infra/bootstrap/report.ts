/** Reporter of Node's test runner: prints the duration of each file and the skipped tests, beside the runner's own report. */
import path from 'node:path';
import type { TestEvent } from 'node:test/reporters';

/** The files that take longest get a line each; the others are added up. */
const LINES = 25;

/**
 * Prints the slowest test files and the reasons of skipped tests. A test that is skipped without a reason fails the run: a reader could not
 * tell a machine without a tool from a test that no step runs.
 */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const durations = new Durations();
  const skipped: { reason: string | undefined; name: string; file: string }[] = [];
  for await (const { type, data } of events) {
    if (type === 'test:complete') durations.add(data);
    if ((type === 'test:pass' || type === 'test:fail') && data.skip !== undefined && data.skip !== false) {
      const reason = typeof data.skip === 'string' && data.skip !== '' ? data.skip : undefined;
      skipped.push({ reason, name: data.name, file: relative(data.file) });
    }
  }
  yield* durations.lines();
  yield* skippedLines(skipped);
  if (skipped.some(({ reason }) => reason === undefined)) process.exitCode = 1;
}

/** Durations of files, in milliseconds. */
class Durations {
  /** With a process per file, the runner reports each file as a test whose name is the file. */
  readonly #processes = new Map<string, number>();
  /** Durations of each file's outermost tests: those of all files, when they share a process. */
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
    if (path.resolve(name) === file) this.#processes.set(key, details.duration_ms);
    else this.#tests.set(key, (this.#tests.get(key) ?? 0) + details.duration_ms);
  }

  *lines(): Generator<string> {
    const all = [...new Map([...this.#tests, ...this.#processes])].sort(([, a], [, b]) => b - a);
    if (all.length === 0) return;
    const others = all.slice(LINES);
    yield `\nTest files by duration (${all.length} in ${seconds(sum(all))}):\n`;
    for (const [file, ms] of all.slice(0, LINES)) yield `${seconds(ms).padStart(9)}  ${file}\n`;
    if (others.length > 0) yield `${seconds(sum(others)).padStart(9)}  ${others.length} others\n`;
  }
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

const sum = (files: readonly (readonly [string, number])[]): number => files.reduce((total, [, ms]) => total + ms, 0);
const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;
const relative = (file: string | undefined): string => (file === undefined ? '' : path.relative(process.cwd(), file));
