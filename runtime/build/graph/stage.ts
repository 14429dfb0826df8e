import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build, type Plugin } from 'esbuild';
import { fromEsbuild, imports, OPTIONS } from '../component/bundle.ts';
import { findSource } from '../component/source.ts';
import { BuildError } from '../outcome.ts';

export interface GraphStageResult {
  readonly ok: true;
  /** The graph before and after the passes, as text. */
  readonly before: string;
  readonly after: string;
  readonly summary: string;
}

/** Time to make a graph, which computes nothing on a model. */
const TIMEOUT_MS = 20_000;
const MAX_OUTPUT_BYTES = 16 * 2 ** 20;

/**
 * The `graph` command: makes the graph of a source's workflow for an input, and draws it before and after the passes into an SVG file. The
 * source runs in Node without files, network, child processes or a platform.
 * @param inputFile a file with the input, JSON
 * @throws BuildError
 */
export async function runGraphStage(
  input: string,
  output: string,
  inputFile: string | undefined,
): Promise<GraphStageResult> {
  const source = await findSource(input);
  const scratch = await mkdtemp(join(tmpdir(), 'pie-graph-'));
  try {
    const program = join(scratch, 'graph.mjs');
    await build({
      ...OPTIONS,
      stdin: { contents: entryText(source.entry), resolveDir: source.directory, sourcefile: 'graph', loader: 'ts' },
      absWorkingDir: source.directory,
      outfile: program,
      sourcemap: 'inline',
      plugins: [withoutPlatform(), imports()],
    }).catch((error: unknown) => {
      throw fromEsbuild(error);
    });
    const given = inputFile ?? join(scratch, 'input.json');
    if (inputFile === undefined) await writeFile(given, '{}');
    const drawn = JSON.parse(await evaluate(program, given)) as { before: string; after: string; svg: string };
    await writeFile(output, drawn.svg);
    const { before, after } = drawn;
    return { ok: true, before, after, summary: `${before}\n\n${after}\n\n${output}` };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Finds the workflow among the exports of the source, and prints its drawings as JSON. */
const entryText = (entry: string): string => `
import { readFileSync } from 'node:fs';
import { drawSvg, drawText, optimise, PASSES } from '@pie/inferlet/workflow';
import * as source from ${JSON.stringify(entry)};
const found = Object.values(source).find((value) => typeof value?.graph === 'function' && typeof value.name === 'string');
if (!found) throw new Error('The source exports no workflow: write "export const app = workflow(…)", or program(…).');
const graph = await found.graph(JSON.parse(readFileSync(process.argv[2], 'utf8')));
const optimised = optimise(graph, PASSES);
const svg = drawSvg([{ title: graph.name, graph }, { title: graph.name + ' after the passes', graph: optimised }]);
process.stdout.write(JSON.stringify({ before: drawText(graph), after: drawText(optimised), svg }));
`;

/** Puts what is not there in place of the library's raw layer: a graph is made without a platform. */
function withoutPlatform(): Plugin {
  return {
    name: 'without-platform',
    setup(setup) {
      const absent = (path: string) => ({ path, namespace: 'absent' });
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

/** A module whose members may be named, and fail when they are called. The bundler finds them through the prototype. */
const ABSENT = `
const refuse = () => { throw new Error('A graph is made without a platform: there are no models, files or calls.'); };
const absent = () => new Proxy(function () {}, { get: (_, name) => (name === 'prototype' ? {} : absent()), apply: refuse, construct: refuse });
const members = new Proxy({}, { get: absent });
module.exports = new Proxy({}, { getPrototypeOf: () => members });
`;

function evaluate(program: string, inputFile: string): Promise<string> {
  const permissions = ['--permission', `--allow-fs-read=${program}`, `--allow-fs-read=${inputFile}`];
  const args = [...permissions, '--no-warnings', '--enable-source-maps', program, inputFile];
  const limits = { timeout: TIMEOUT_MS, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT_BYTES, env: {} } as const;
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, limits, (error, stdout, stderr) => {
      if (!error) resolve(stdout);
      else if (error.killed) reject(tooLong());
      else reject(failed(stderr));
    });
  });
}

const tooLong = (): BuildError =>
  new BuildError('build-timeout', `The graph was not made within ${TIMEOUT_MS / 1000} s.`, 'Make it smaller.');

function failed(stderr: string): BuildError {
  const lines = stderr.split('\n');
  const at = lines.findIndex((line) => /^\w*Error\b.*:/.test(line));
  const place = lines.slice(at + 1).find((line) => line.trimStart().startsWith('at '));
  const text = at < 0 ? stderr.trim().slice(-500) : `${lines[at]}${place ? ` (${place.trim()})` : ''}`;
  return new BuildError(
    'build-failed',
    `The graph cannot be made. ${text}`,
    'Correct the source, or give another --input.',
  );
}
