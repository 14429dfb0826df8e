import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { withLock } from '#gpu-host/models/lock.ts';
import type { Compiler } from './build-tools.ts';

/**
 * Finds the headers of a source: the existing files that it includes with quotes, by a path from its own folder, and
 * in turn the headers of these. All other headers (of the system, of packages) are known by name and are not read.
 */
export class Includes {
  readonly #parsedFiles = new Map<string, { text: Buffer; includes: readonly string[]; system: readonly string[] }>();
  readonly #ignoredFolder: string | undefined;

  /** @param ignoredFolder a folder whose headers are ignored in every file that includes them */
  constructor(ignoredFolder?: string) {
    this.#ignoredFolder = ignoredFolder;
  }

  /** A new instance that reads the files again. */
  withoutCache(): Includes {
    return new Includes(this.#ignoredFolder);
  }

  /** The source and all its headers, in a fixed order. */
  of(source: string): readonly string[] {
    const seen = new Set([source]);
    // The loop also visits the files that it adds to the set.
    for (const file of seen) for (const next of this.#read(file).includes) seen.add(next);
    return [...seen];
  }

  /**
   * True when the source or one of its headers includes `header` by a name that this class does not follow: with angle
   * brackets, or with quotes although no such file exists.
   */
  usesSystem(source: string, header: string): boolean {
    return this.of(source).some((file) => this.#read(file).system.includes(header));
  }

  text(file: string): Buffer {
    return this.#read(file).text;
  }

  /** `includes` are paths of headers that exist; `system` are the names of the others. */
  #read(file: string) {
    const cached = this.#parsedFiles.get(file);
    if (cached !== undefined) return cached;
    const text = readFileSync(file);
    const includes: string[] = [];
    const system: string[] = [];
    for (const [, delimiter, name = ''] of text.toString('utf8').matchAll(/^\s*#\s*include\s*(["<])([^">]+)[">]/gm)) {
      const headerPath = path.resolve(path.dirname(file), name);
      if (this.#ignoredFolder !== undefined && headerPath.startsWith(this.#ignoredFolder + path.sep)) continue;
      if (delimiter === '"' && existsSync(headerPath)) includes.push(headerPath);
      else system.push(name);
    }
    const parsed = { text, includes, system };
    this.#parsedFiles.set(file, parsed);
    return parsed;
  }
}

/** A source failed to compile or link. The message is the compiler's output. */
export class BuildError extends Error {
  override readonly name: string = 'BuildError';
}

/** A source or one of its headers changed during its compilation. */
export class SourceChangedError extends BuildError {
  override readonly name = 'SourceChangedError';
  constructor(source: string) {
    super(`${source}, or a header of it, changed while it was compiled`);
  }
}

export interface ObjectCacheOptions {
  /** Folder of the objects, which are named by a hash of all their inputs. */
  readonly folder: string;
  readonly compiler: Compiler;
  readonly includes: Includes;
  readonly includeFolders: readonly string[];
  /** Folder of the sources; messages name files relative to it. */
  readonly root: string;
  /**
   * A header to precompile for the sources that include the header `with`. `header` is compiled once for each list of arguments that these
   * sources have, and the compiler reads the result first in each of them. This saves time when there are many sources, and needs a compiler
   * that `precompiles`.
   */
  readonly shared?: { readonly header: string; readonly with: string };
  /** Path prefixes of headers that define CUDA's keywords. Including such a header does not by itself make a source card code. */
  readonly keywordHeaders: readonly string[];
  /** Most files compiled at the same time. */
  readonly jobs: number;
  readonly onCompiled: (source: string, doneCount: number, total: number, warnings: string) => void;
  /** Further arguments, such as `-Xptxas -v`. */
  readonly extra: readonly string[];
  /** True to treat the compiler's warnings as errors. */
  readonly strict: boolean;
}

const LOCK_POLL_MS = 50;

/** Compiles missing objects, several at a time; a lock makes other processes wait. Returns the objects in the sources' order. */
export async function compileAll(sources: readonly string[], options: ObjectCacheOptions): Promise<string[]> {
  const { folder, compiler, includes } = options;
  mkdirSync(folder, { recursive: true });
  const inputs = { ...options, headers: headersHash(options.includeFolders) };
  const pairs = sources.map((source) => {
    const args = argumentsOf(source, includes, options);
    return { source, args, object: objectOf(source, includes, args, inputs) };
  });
  const missing = () => pairs.filter(({ object }) => !existsSync(object));
  if (missing().length > 0) {
    const lock = path.join(folder, `${path.basename(compiler.program)}.lock`);
    await withLock(lock, { pollMs: LOCK_POLL_MS }, () => compileMissing(missing(), inputs));
  }
  const objects = pairs.map(({ object }) => object);
  const now = new Date();
  for (const object of objects) utimesSync(object, now, now);
  return objects;
}

/** Matches code that runs on the card, in a source or in one of its headers. */
const CARD_CODE = /__(global|device|shared)__|\bLAUNCH\s*\(/;

export function isTest(source: string): boolean {
  return /\.test\.(cu|cc)$/.test(source);
}

function argumentsOf(source: string, includes: Includes, options: ObjectCacheOptions): string[] {
  const { compiler, extra, keywordHeaders } = options;
  // `compileTest` saves time: it optimises less and leaves out the emulation's checks, which only card code needs.
  if (compiler.compileTest && isTest(source) && !CARD_CODE.test(includes.text(source).toString()))
    return [...compiler.compileTest, ...extra];
  const files = includes.of(source).filter((file) => !keywordHeaders.some((start) => file.startsWith(start)));
  const runsOnCard = files.some((file) => CARD_CODE.test(includes.text(file).toString()));
  return [...(runsOnCard ? compiler.compile : compiler.compileHost), ...extra];
}

/** Options of a build, and a hash of the headers in its include folders. */
type Inputs = ObjectCacheOptions & { readonly headers: string };

/** Hash of the files of include folders. Their paths are left out: objects are the same in every clone. */
function headersHash(folders: readonly string[]): string {
  const hash = createHash('sha256');
  for (const folder of folders) {
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    for (const file of entries.map(({ parentPath, name }) => path.join(parentPath, name)).sort())
      hash.update(`${path.relative(folder, file)}\0`).update(readFileSync(file));
  }
  return hash.digest('hex');
}

/** Path of a source's object, named by a hash of the compiler, its arguments, the source and its headers. */
function objectOf(
  source: string,
  includes: Includes,
  args: readonly string[],
  { folder, compiler, headers, shared }: Inputs,
): string {
  const hash = createHash('sha256').update(JSON.stringify([compiler.program, compiler.version, args, headers]));
  const precompiledHeaders =
    compiler.precompiles && shared && includes.of(source).includes(shared.with) ? [shared.header] : [];
  for (const file of [...precompiledHeaders, ...includes.of(source)])
    hash.update(`${path.basename(file)}\0`).update(includes.text(file));
  return path.join(folder, `${path.basename(source)}-${hash.digest('hex').slice(0, 24)}.o`);
}

async function compileMissing(
  missing: { source: string; args: readonly string[]; object: string }[],
  options: Inputs,
): Promise<void> {
  const { compiler, includes, includeFolders, root, jobs, onCompiled, strict, shared } = options;
  // Paths of this clone; they do not affect the object's hash.
  const paths = [...includeFolders.map((includeFolder) => `-I${includeFolder}`), ...compiler.withoutRoot(root)];
  // Largest sources first: they take longest.
  missing.sort((a, b) => statSync(b.source).size - statSync(a.source).size);
  const total = missing.length;
  let compiledCount = 0;
  const errors: string[] = [];
  let changedSource: string | undefined;
  await using headers = new SharedHeaders(options, paths);
  const headerArgumentsOf = (source: string, args: readonly string[]) =>
    shared && total >= MIN_SOURCES_TO_SHARE && includes.of(source).includes(shared.with)
      ? headers.compiled(shared.header, args)
      : [];
  const worker = async () => {
    for (let next = missing.shift(); next !== undefined; next = missing.shift()) {
      // The object gets its final name only when it is complete.
      const partial = `${next.object}.tmp`;
      const { status, output } = await run(compiler.program, [
        ...next.args,
        ...paths,
        ...(await headerArgumentsOf(next.source, next.args)),
        '-c',
        next.source,
        '-o',
        partial,
      ]);
      if (status !== 0 || (strict && output !== '')) errors.push(output || `${compiler.program} ended with ${status}`);
      else if (objectOf(next.source, includes.withoutCache(), next.args, options) !== next.object)
        changedSource = next.source;
      if (errors.length > 0 || changedSource !== undefined) {
        rmSync(partial, { force: true });
        missing.length = 0;
        return;
      }
      renameSync(partial, next.object);
      onCompiled(next.source, ++compiledCount, total, output);
    }
  };
  await Promise.all(Array.from({ length: Math.min(jobs, total) }, worker));
  if (errors.length > 0) throw new BuildError(errors.join('\n'));
  if (changedSource !== undefined) throw new SourceChangedError(changedSource);
}

/** Least number of sources to compile for which precompiling the header saves time. */
const MIN_SOURCES_TO_SHARE = 12;

/** Precompiled headers of one build. They take tens of megabytes, so the build deletes them at its end. */
class SharedHeaders implements AsyncDisposable {
  readonly #options: Inputs;
  readonly #paths: readonly string[];
  readonly #folder: string;
  readonly #compiledHeaders = new Map<string, Promise<string[]>>();

  /** @param paths arguments that name paths of the clone */
  constructor(options: Inputs, paths: readonly string[]) {
    this.#options = options;
    this.#paths = paths;
    // Only the holder of the lock uses this folder.
    this.#folder = path.join(options.folder, `${path.basename(options.compiler.program)}-headers`);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** The arguments that make a compilation with `args` read the compiled header first; none if the header does not compile. */
  compiled(header: string, args: readonly string[]): Promise<string[]> {
    const key = JSON.stringify(args);
    const headerArguments =
      this.#compiledHeaders.get(key) ?? this.#compile(header, args, String(this.#compiledHeaders.size));
    this.#compiledHeaders.set(key, headerArguments);
    return headerArguments;
  }

  async #compile(header: string, args: readonly string[], name: string): Promise<string[]> {
    const { compiler } = this.#options;
    if (!compiler.precompiles) return [];
    mkdirSync(this.#folder, { recursive: true });
    // GCC looks for the compiled header beside the one that it is told to read.
    const file = path.join(this.#folder, `${name}.h`);
    writeFileSync(file, `#include ${JSON.stringify(header)}\n`);
    const { status } = await run(compiler.program, [
      ...args,
      ...this.#paths,
      '-x',
      'c++-header',
      '-c',
      file,
      '-o',
      `${file}.gch`,
    ]);
    return status === 0 ? ['-include', file] : [];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#compiledHeaders.values());
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Links objects into a program or a library. `outputFile` gets its final name only when it is complete. */
export async function link(
  objects: readonly string[],
  outputFile: string,
  args: readonly string[],
  compiler: Compiler,
): Promise<void> {
  mkdirSync(path.dirname(outputFile), { recursive: true });
  const partial = `${outputFile}.${process.pid}.tmp`;
  const { status, output } = await run(compiler.program, [...objects, '-o', partial, ...args]);
  if (status !== 0) {
    rmSync(partial, { force: true });
    throw new BuildError(output || `${compiler.program} ended with ${status}`);
  }
  renameSync(partial, outputFile);
}

/** Removes files that no build has used for `days` days. */
export function forgetOld(folder: string, days: number): void {
  if (!existsSync(folder)) return;
  const oldest = Date.now() - days * 24 * 3600 * 1000;
  for (const name of readdirSync(folder)) {
    const file = path.join(folder, name);
    if ((statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY) < oldest)
      rmSync(file, { recursive: true, force: true });
  }
}

/** Runs a program and returns its exit status and all its output. */
async function run(program: string, args: readonly string[]): Promise<{ status: number | null; output: string }> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const parts: Buffer[] = [];
  child.stdout.on('data', (part: Buffer) => parts.push(part));
  child.stderr.on('data', (part: Buffer) => parts.push(part));
  const status = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return { status, output: Buffer.concat(parts).toString('utf8').trim() };
}
