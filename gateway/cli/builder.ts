import { readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { type Diagnostic, EXIT, Failure } from './failure.ts';
import { componentCache } from './paths.ts';
import { type ProgramOutcome, runProgram } from './programs.ts';

/** A component that runtime/build wrote. All members but `buildMs` are from the program's report. */
export interface Built {
  readonly bytes: number;
  /** Time that the whole program took, its start included. */
  readonly buildMs: number;
  /** True when nothing had changed since the last build. */
  readonly cached: boolean;
  /** Absolute paths of the files in the bundle: those of the project and of its packages. */
  readonly files: readonly string[];
  /** Notes to the developer about the source's workflows. */
  readonly notes: readonly string[];
}

/** The program that turns source into a component. It runs as a separate process with its own limits. */
const BUILD_PROGRAM = 'runtime/build/main.ts';
/** Longest build, on a busy machine; a usual one takes two seconds. */
const BUILD_TIMEOUT_MS = 300_000;

/** Builds the component of `entry` into the file `outFile`. Throws {@link Failure} with the compiler's messages. */
export async function buildComponent(entry: string, outFile: string): Promise<Built> {
  const startedAt = performance.now();
  const store = componentCache();
  const args = ['component', entry, outFile, '--store', store, '--json'];
  const outcome = await runProgram(BUILD_PROGRAM, args, 'read', BUILD_TIMEOUT_MS);
  const report = lastJson(outcome.stdout);
  if (outcome.code !== 0) throw buildFailure(outcome, report, path.dirname(entry));
  trimComponentCache(store);
  return {
    bytes: numberOf(report.bytes) ?? 0,
    buildMs: performance.now() - startedAt,
    cached: report.cached === true,
    files: stringsOf(report.files).map((file) => path.resolve(path.dirname(entry), file)),
    notes: stringsOf(report.notes),
  };
}

/**
 * Draws the workflow of `entry` for the input in `inputFile`, before and after the passes, into the SVG file `outFile`.
 * Returns both graphs as text. Throws {@link Failure}.
 */
export async function drawGraph(
  entry: string,
  outFile: string,
  inputFile: string,
): Promise<{ before: string; after: string }> {
  const args = ['graph', entry, outFile, '--input', inputFile, '--json'];
  const outcome = await runProgram(BUILD_PROGRAM, args, 'read', BUILD_TIMEOUT_MS);
  const report = lastJson(outcome.stdout);
  if (outcome.code !== 0) throw buildFailure(outcome, report, path.dirname(entry));
  return { before: stringOf(report.before) ?? '', after: stringOf(report.after) ?? '' };
}

function buildFailure(outcome: ProgramOutcome, report: Record<string, unknown>, project: string): Failure {
  if (outcome.code === EXIT.interrupted)
    return new Failure('Interrupted.', { exitCode: EXIT.interrupted, code: 'interrupted' });
  const diagnostics = Array.isArray(report.diagnostics) ? (report.diagnostics as Diagnostic[]) : [];
  // The compiler's paths are relative to the project; make them relative to the working directory.
  const shownPath = (file: string) => path.relative(process.cwd(), path.resolve(project, file));
  const firstFile = diagnostics[0]?.file ?? '';
  const message = stringOf(report.message)?.replace(`: ${firstFile}:`, `: ${shownPath(firstFile)}:`);
  return new Failure(message ?? (outcome.stderr.trim() || 'The build failed and gave no reason.'), {
    exitCode: EXIT.refused,
    code: stringOf(report.code) ?? 'build-failed',
    advice: stringOf(report.hint) ?? 'Correct the source, then try again.',
    diagnostics: diagnostics.map((fault) => (fault.file === '' ? fault : { ...fault, file: shownPath(fault.file) })),
  });
}

/** The last line that is a JSON object; an empty object without such a line. */
function lastJson(text: string): Record<string, unknown> {
  for (const line of text.trim().split('\n').reverse()) {
    if (!line.startsWith('{')) continue;
    try {
      return JSON.parse(line) as Record<string, unknown>;
    } catch {
      // Not JSON: try an earlier line.
    }
  }
  return {};
}

const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);
const stringsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
const stringOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);

/** Maximum bytes of compiled components on a user's disk. A component has about 2 MB. */
const MAX_CACHE_BYTES = 512 * 2 ** 20;
/** Components used within this time stay, since another command may still need them. */
const IN_USE_MS = 10 * 60_000;

/**
 * Removes the least recently used components until the rest takes at most `maxBytes`. Other commands may do so at the same time. Skips
 * an unreadable or read-only folder, because no build depends on the removal.
 */
export function trimComponentCache(folder: string, maxBytes = MAX_CACHE_BYTES, now = Date.now()): void {
  try {
    const files = readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .flatMap(({ name }) => {
        const file = path.join(folder, name);
        const stat = statSync(file, { throwIfNoEntry: false });
        return stat === undefined ? [] : [{ file, bytes: stat.size, usedAt: stat.mtimeMs }];
      })
      .sort((a, b) => a.usedAt - b.usedAt);
    let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    for (const { file, bytes: size, usedAt } of files) {
      if (bytes <= maxBytes || now - usedAt < IN_USE_MS) return;
      rmSync(file, { force: true });
      bytes -= size;
    }
  } catch {
    // The folder does not exist, or belongs to another user.
  }
}
