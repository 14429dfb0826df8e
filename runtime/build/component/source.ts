import { readFile, stat } from 'node:fs/promises';
import { dirname, extname, join, resolve } from 'node:path';
import { BuildError } from '../outcome.ts';

/** Paths of an inferlet's source. */
export interface Source {
  /** The project; paths in messages are relative to it. */
  readonly directory: string;
  /** Entry module, absolute. */
  readonly entry: string;
}

const ENTRIES = ['index', 'main', 'src/index', 'src/main'].flatMap((name) => [
  `${name}.ts`,
  `${name}.js`,
  `${name}.mjs`,
]);

/** Endings of the sources that `native/` compiles. */
export const NATIVE_ENDINGS = ['.c', '.rs', '.wasm'] as const;

/** True for a source that `native/` compiles. */
export const isNative = ({ entry }: Pick<Source, 'entry'>): boolean =>
  (NATIVE_ENDINGS as readonly string[]).includes(extname(entry));

/** True if the bundle contains the library's workflow module. `files` are the bundle's files, relative to the project. */
export const hasWorkflows = ({ directory }: Pick<Source, 'directory'>, files: readonly string[]): boolean =>
  files.some((file) =>
    /(functions\/sdk\/src|@pie\/inferlet\/(dist|src))\/workflow\/index\.[jt]s$/.test(resolve(directory, file)),
  );

/** Finds the entry module of a file or a project folder (`main` of its pie.json, or a usual name). Throws BuildError. */
export async function findSource(path: string): Promise<Source> {
  const absolute = resolve(path);
  const info = await stat(absolute).catch(() => null);
  if (info?.isFile()) return { directory: dirname(absolute), entry: absolute };
  if (!info?.isDirectory()) {
    throw new BuildError('build-failed', `There is no file or folder ${path}.`, 'Check the path.');
  }
  const main = await manifestMain(absolute);
  for (const name of main === null ? ENTRIES : [main]) {
    const entry = resolve(absolute, name);
    if ((await stat(entry).catch(() => null))?.isFile()) return { directory: absolute, entry };
  }
  throw new BuildError(
    'build-failed',
    main === null
      ? `The folder ${path} has no ${ENTRIES.slice(0, 2).join(' or ')}.`
      : `pie.json names "${main}" as main, which is not there.`,
    'Name the entry module in pie.json: {"main": "index.ts"}.',
  );
}

async function manifestMain(directory: string): Promise<string | null> {
  const path = join(directory, 'pie.json');
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null) return null;
  try {
    const { main } = JSON.parse(text) as { main?: unknown };
    return typeof main === 'string' ? main : null;
  } catch (error) {
    throw new BuildError('build-failed', `pie.json is not JSON: ${(error as Error).message}`, 'Correct pie.json.');
  }
}

/** Outcome of the `component` command. */
export interface ComponentStageResult {
  readonly ok: true;
  /** Path of the written script or component. */
  readonly path: string;
  /** Source files of the function, relative to the project. */
  readonly files: readonly string[];
  /** Notes to the developer about the source's workflows. */
  readonly notes: readonly string[];
  readonly summary: string;
}
