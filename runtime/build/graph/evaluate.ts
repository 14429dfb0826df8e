import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build, type Plugin } from 'esbuild';
import { fromEsbuild, imports, OPTIONS } from '../component/bundle.ts';
import { findSource, type Source } from '../component/source.ts';
import { BuildError } from '../outcome.ts';

/** Time limit for making the graphs of a source. No model computes anything in this time. */
const TIMEOUT_MS = 20_000;
const MAX_OUTPUT_BYTES = 16 * 2 ** 20;
const PRINTED_TOO_MUCH = `The source prints more than ${MAX_OUTPUT_BYTES / 2 ** 20} MiB.`;

/** The program that makes a source's graphs, and its input. */
export interface Evaluation {
  /** A module that imports the source and calls `__pieTold` with its result. `process.argv[2]` is the file with the input. */
  readonly entry: string;
  readonly inputFile: string;
  /** An empty folder. */
  readonly scratch: string;
  readonly plugins?: readonly Plugin[];
}

/**
 * Runs a source in Node without files, network, child processes or a platform, and returns the JSON of its result.
 * @throws BuildError
 */
export async function evaluate(source: Source, evaluation: Evaluation): Promise<string> {
  const program = join(evaluation.scratch, 'graph.mjs');
  await build({
    ...OPTIONS,
    stdin: { contents: evaluation.entry, resolveDir: source.directory, sourcefile: 'graph', loader: 'ts' },
    absWorkingDir: source.directory,
    outfile: program,
    sourcemap: 'inline',
    // The library registers workflows and programs in this list.
    banner: { js: `globalThis[Symbol.for('pie.workflows')] = []; ${REPORT_FUNCTION}` },
    plugins: [withoutPlatform(), imports(), ...(evaluation.plugins ?? [])],
  }).catch((error: unknown) => {
    throw fromEsbuild(error);
  });
  return run(program, evaluation.inputFile);
}

/** Begins the line with the result: the source may print other lines. */
const MARK = '\u0001result ';
const REPORT_FUNCTION = `const __pieTold = (result) => process.stdout.write('\\n' + ${JSON.stringify(MARK)} + JSON.stringify(result) + '\\n');`;

/** Replaces the library's raw layer by a module whose functions fail, because a graph is made without a platform. */
function withoutPlatform(): Plugin {
  return {
    name: 'without-platform',
    setup(setup) {
      const absent = (path: string) => ({ path, namespace: 'absent' });
      // Only the entry, whose file is called `graph`, may import `node:fs`.
      setup.onResolve({ filter: /^node:fs$/ }, ({ path, importer }) =>
        importer.endsWith('graph') ? { path, external: true } : undefined,
      );
      setup.onResolve({ filter: /^pie:inferlet\/|^@pie\/inferlet\/raw$/ }, ({ path }) => absent(path));
      setup.onResolve({ filter: /(^|\/)raw\.[jt]s$/ }, ({ path, importer }) =>
        /\b(sdk\/src|@pie\/inferlet)\//.test(importer) ? absent(path) : undefined,
      );
      setup.onLoad({ filter: /.*/, namespace: 'absent' }, () => ({ contents: ABSENT, loader: 'js' }));
    },
  };
}

/** A module that has every member, each of which fails when it is called. esbuild's import keeps the prototype, which provides the members. */
const ABSENT = `
const refuse = () => { throw new Error('A graph is made without a platform: there are no models, files or calls.'); };
const absent = () => new Proxy(function () {}, { get: (_, name) => (name === 'prototype' ? {} : absent()), apply: refuse, construct: refuse });
const members = new Proxy({}, { get: absent });
module.exports = new Proxy({}, { getPrototypeOf: () => members });
`;

function run(program: string, inputFile: string): Promise<string> {
  const permissions = ['--permission', `--allow-fs-read=${program}`, `--allow-fs-read=${inputFile}`];
  // SQLite and FFI open files and libraries past the permission model.
  const closedFeatures = ['--no-experimental-sqlite', '--no-experimental-ffi'];
  const args = [...permissions, ...closedFeatures, '--no-warnings', '--enable-source-maps', program, inputFile];
  const limits = { timeout: TIMEOUT_MS, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT_BYTES, env: {} } as const;
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, limits, (error, stdout, stderr) => {
      const result = stdout.split('\n').find((line) => line.startsWith(MARK));
      if (!error && result !== undefined) resolve(result.slice(MARK.length));
      else if (error?.killed) reject(tooLong());
      else if (error?.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER') reject(failureOf(PRINTED_TOO_MUCH));
      else reject(failureOf(stderr.trim() || 'The source ends the program that makes it.'));
    });
  });
}

const tooLong = (): BuildError =>
  new BuildError('build-timeout', `The graph was not made within ${TIMEOUT_MS / 1000} s.`, 'Make it smaller.');

function failureOf(errors: string): BuildError {
  const lines = errors.split('\n');
  const at = lines.findIndex((line) => /^\w*Error\b.*:/.test(line));
  const stackLine = lines.slice(at + 1).find((line) => line.trimStart().startsWith('at '));
  const text = at < 0 ? errors.slice(-500) : `${lines[at]}${stackLine ? ` (${stackLine.trim()})` : ''}`;
  return new BuildError(
    'build-failed',
    `The graph cannot be made. ${text}`,
    'Correct the source, or give another --input.',
  );
}

export interface GraphStageResult {
  readonly ok: true;
  /** Text of the graph before the optimisation passes. */
  readonly before: string;
  /** Text of the graph after the optimisation passes. */
  readonly after: string;
  /** Both texts and the path of the SVG file: what the command prints without `--json`. */
  readonly summary: string;
}

/**
 * The `graph` command: makes the graph of the workflow in a source file or project folder, and draws it before and after the optimisation
 * passes into an SVG file.
 * @param inputFile a JSON file with the workflow's input; without it, the input is `{}`
 * @throws BuildError
 */
export async function runGraphStage(
  sourcePath: string,
  svgPath: string,
  inputFile: string | undefined,
): Promise<GraphStageResult> {
  const source = await findSource(sourcePath);
  const scratch = await mkdtemp(join(tmpdir(), 'pie-graph-'));
  try {
    const inputPath = inputFile ?? join(scratch, 'input.json');
    if (inputFile === undefined) await writeFile(inputPath, '{}');
    const resultJson = await evaluate(source, { entry: entryText(source.entry), inputFile: inputPath, scratch });
    const { before, after, svg } = JSON.parse(resultJson) as { before: string; after: string; svg: string };
    await writeFile(svgPath, svg);
    return { ok: true, before, after, summary: `${before}\n\n${after}\n\n${svgPath}` };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** The text of the module that `evaluate` runs. The module finds a workflow or program among the exports of `entry`, and reports its drawings. */
const entryText = (entry: string): string => `
import { readFileSync } from 'node:fs';
import { drawSvg, drawText, optimise, PASSES } from '@pie/inferlet/workflow';
import * as source from ${JSON.stringify(entry)};
const found = Object.values(source).find((value) => typeof value?.graph === 'function' && typeof value.name === 'string');
if (!found) throw new Error('The source exports no workflow: write "export const app = workflow(…)", or program(…).');
const graph = await found.graph(JSON.parse(readFileSync(process.argv[2], 'utf8')));
const optimised = optimise(graph, PASSES);
const svg = drawSvg([{ title: graph.name, graph }, { title: graph.name + ' after the passes', graph: optimised }]);
__pieTold({ before: drawText(graph), after: drawText(optimised), svg });
`;
