import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Bundler } from '#runtime/build/component/bundle.ts';
import { type Diagnostic, EXIT, Failure } from './failure.ts';
import { isNative } from './function-source.ts';
import { buildCache } from './paths.ts';
import { type ProgramOutcome, runProgram } from './programs.ts';

/** A function that was built from its source. */
export interface Built {
  /** The script, or the component of a native source. */
  readonly component: Uint8Array<ArrayBuffer>;
  readonly buildMs: number;
  /** Absolute paths of the files in the bundle: those of the project and of its packages. */
  readonly files: readonly string[];
  /** Notes to the developer about the source's workflows. */
  readonly notes: readonly string[];
}

/** Builds the source with the entry file `entry`. Throws {@link Failure} with the compiler's messages. */
export type Build = (entry: string) => Promise<Built>;

/** The program that runs what a source needs besides the bundler. It is a separate process with its own limits. */
const BUILD_PROGRAM = 'runtime/build/main.ts';
/** Longest run of the program, on a busy machine. */
const BUILD_TIMEOUT_MS = 300_000;

/** Builds a source once. */
export const buildSource: Build = (entry) => (isNative(entry) ? buildNative(entry) : bundleScript(entry));

/** Builds sources again and again: after a save, the bundler reads and parses only the files that have changed. */
export class RepeatedBuild implements AsyncDisposable {
  #opened: { readonly entry: string; readonly bundler: Bundler } | undefined;

  readonly build: Build = async (entry) =>
    isNative(entry) ? buildNative(entry) : bundleScript(entry, await this.#bundlerOf(entry));

  async #bundlerOf(entry: string): Promise<Bundler> {
    if (this.#opened?.entry === entry) return this.#opened.bundler;
    await this[Symbol.asyncDispose]();
    const { openBundler } = await import('#runtime/build/component/bundle.ts');
    const bundler = await openBundler(sourceOf(entry));
    this.#opened = { entry, bundler };
    return bundler;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const opened = this.#opened;
    this.#opened = undefined;
    await opened?.bundler[Symbol.asyncDispose]();
  }
}

const sourceOf = (entry: string) => ({ directory: path.dirname(entry), entry });

/** Bundles in this process, because the bundler runs no code of the source. The check of workflows does, and gets a process. */
async function bundleScript(entry: string, bundler?: Bundler): Promise<Built> {
  const startedAt = performance.now();
  const source = sourceOf(entry);
  // Loaded here, because other commands do not need the bundler.
  const { buildScript } = await import('#runtime/build/component/stage.ts');
  const { hasWorkflows } = await import('#runtime/build/component/source.ts');
  const { script, files } = await buildScript(source, bundler?.bundle()).catch(async (error: unknown) => {
    const { failureFrom } = await import('#runtime/build/outcome.ts');
    throw refusal(failureFrom(error), source.directory);
  });
  const hasChecks = hasWorkflows(source, files);
  const notes = hasChecks ? stringsOf((await runBuildProgram(['check', entry], source.directory)).notes) : [];
  const absoluteFiles = files.map((file) => path.resolve(source.directory, file));
  return { component: script, buildMs: performance.now() - startedAt, files: absoluteFiles, notes };
}

/** Compiles C or Rust, or wraps a core module. */
async function buildNative(entry: string): Promise<Built> {
  const startedAt = performance.now();
  const directory = path.dirname(entry);
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-build-'));
  try {
    const out = path.join(folder, 'component.wasm');
    const report = await runBuildProgram(['component', entry, out, '--store', buildCache()], directory);
    const files = stringsOf(report.files).map((file) => path.resolve(directory, file));
    const component = new Uint8Array(readFileSync(out));
    return { component, buildMs: performance.now() - startedAt, files, notes: stringsOf(report.notes) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
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
  const report = await runBuildProgram(['graph', entry, outFile, '--input', inputFile], path.dirname(entry));
  return { before: stringOf(report.before) ?? '', after: stringOf(report.after) ?? '' };
}

/** Returns the report of the program. Throws {@link Failure}. */
async function runBuildProgram(args: readonly string[], project: string): Promise<Record<string, unknown>> {
  const outcome = await runProgram(BUILD_PROGRAM, [...args, '--json'], 'read', BUILD_TIMEOUT_MS);
  const report = lastJson(outcome.stdout);
  if (outcome.code !== 0) throw programFailure(outcome, report, project);
  return report;
}

function programFailure(outcome: ProgramOutcome, report: Record<string, unknown>, project: string): Failure {
  if (outcome.code === EXIT.interrupted)
    return new Failure('Interrupted.', { exitCode: EXIT.interrupted, code: 'interrupted' });
  const { diagnostics } = report;
  return refusal(
    {
      code: stringOf(report.code) ?? 'build-failed',
      message: stringOf(report.message) ?? (outcome.stderr.trim() || 'The build failed and gave no reason.'),
      hint: stringOf(report.hint) ?? 'Correct the source, then try again.',
      diagnostics: Array.isArray(diagnostics) ? (diagnostics as Diagnostic[]) : [],
    },
    project,
  );
}

interface Refusal {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
  readonly diagnostics?: readonly Diagnostic[];
}

/** The failure of a build, with paths relative to the working directory: the compiler's paths are relative to the project. */
function refusal({ code, message, hint, diagnostics = [] }: Refusal, project: string): Failure {
  const firstFile = diagnostics[0]?.file ?? '';
  return new Failure(
    firstFile === '' ? message : message.replace(`: ${firstFile}:`, `: ${shownPath(project, firstFile)}:`),
    {
      exitCode: EXIT.refused,
      code,
      advice: hint,
      diagnostics: diagnostics.map((fault) =>
        fault.file === '' ? fault : { ...fault, file: shownPath(project, fault.file) },
      ),
    },
  );
}

const shownPath = (project: string, file: string): string => path.relative(process.cwd(), path.resolve(project, file));

/** The place at the end of the platform's refusal of a script: `(src/index.ts:3:5)`, relative to the project. */
const PLACE = / \(([^()]+):(\d+):(\d+)\)$/;

/** The platform's refusal of a script, with the line of the local source that it names; the failure itself when it names none. */
export function withLocalSource(failure: Failure, entry: string): Failure {
  const [ending = '', file = '', line = '', column = ''] = PLACE.exec(failure.message) ?? [];
  if (ending === '') return failure;
  const directory = path.dirname(entry);
  const text = failure.message.slice(0, -ending.length);
  const fault = text.replace(/^[^:]+: /, '');
  const diagnostic = {
    file: shownPath(directory, file),
    line: Number(line),
    column: Number(column),
    text: fault,
    source: lineOf(path.resolve(directory, file), Number(line)),
  };
  return new Failure(text, { ...failure, diagnostics: [diagnostic], cause: failure.cause });
}

/** A line of a file, counted from 1; empty when the file has no such line or cannot be read. */
function lineOf(file: string, line: number): string {
  try {
    return readFileSync(file, 'utf8').split(/\r?\n/)[line - 1] ?? '';
  } catch {
    return '';
  }
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

const stringsOf = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
const stringOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
