import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { withLock } from '#gpu-host/models/lock.ts';

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
class SourceChangedError extends BuildError {
  override readonly name = 'SourceChangedError';
  constructor(source: string) {
    super(`${source}, or a header of it, changed while it was compiled`);
  }
}

interface ObjectCacheOptions {
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

function isTest(source: string): boolean {
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

/** A build product: the addon that Node loads, the C++ tests, or the harness that checks and measures on a card. */
export type Target = 'addon' | 'tests' | 'harness';

interface BuildOptions {
  /** True to build for the CPU, with the emulation; false to build for the card. */
  readonly emulated: boolean;
  /** Emulation only: every wrong address ends the run. */
  readonly sanitize?: boolean;
  readonly arch?: string;
  /** Destination file; without it, the product stays in the cache. */
  readonly out?: string;
  readonly jobs?: number;
  readonly onCompiled?: (source: string, done: number, of: number, warnings: string) => void;
  readonly extra?: readonly string[];
  /** True to treat the compiler's warnings as errors. */
  readonly strict?: boolean;
  /** True to find the sources' errors and warnings only: for a card, nvcc then takes two fifths of the time. Nothing is linked. */
  readonly checkOnly?: boolean;
}

const HERE = import.meta.dirname;
const ROOT = path.resolve(HERE, '../../..');
const NATIVE = path.join(HERE, 'native');
/** Cache of objects and products, named by a hash of their inputs, for all clones of a user: `$XDG_CACHE_HOME/pie/cuda` or `~/.cache/pie/cuda`. */
const CACHE = path.join(process.env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'pie', 'cuda');
const KEPT_DAYS = 14;
/** Header to precompile for the sources that include the header `with`: see `ObjectCacheOptions.shared`. */
const SHARED = {
  header: path.join(NATIVE, 'emulation', 'precompiled.h'),
  with: path.join(NATIVE, 'emulation', 'emulation.h'),
};

/** Builds a target, unless the cache has it. @returns its file; none if the sources are only checked */
export async function build(target: Target, options: BuildOptions): Promise<string> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await buildOnce(target, options);
    } catch (error) {
      // A developer is editing the sources. Try again: the cache keeps the finished objects.
      if (!(error instanceof SourceChangedError) || attempts === 5) throw error;
    }
  }
}

async function buildOnce(target: Target, options: BuildOptions): Promise<string> {
  const compiler = options.emulated
    ? emulationCompiler(options.sanitize, options.arch)
    : cardCompiler(options.arch ?? DEFAULT_ARCH, options.checkOnly);
  const includes = new Includes(options.emulated ? undefined : path.join(NATIVE, 'emulation'));
  const sources = sourcesOf(target, options.emulated, includes);
  const objects = await compileAll(sources, {
    folder: path.join(CACHE, 'objects'),
    compiler,
    includes,
    root: ROOT,
    includeFolders: [path.join(ROOT, 'node_modules', 'node-api-headers', 'include')],
    ...(options.emulated && { shared: SHARED }),
    keywordHeaders: [path.join(NATIVE, 'device', 'device.h'), path.join(NATIVE, 'emulation') + path.sep],
    jobs: options.jobs ?? os.availableParallelism(),
    extra: options.extra ?? [],
    strict: options.strict ?? false,
    onCompiled: options.onCompiled ?? (() => undefined),
  });
  const file = options.checkOnly ? '' : await linkIntoCache(target, objects, compiler);
  forgetOld(path.join(CACHE, 'objects'), KEPT_DAYS);
  forgetOld(path.join(CACHE, 'built'), KEPT_DAYS);
  if (options.out === undefined) return file;
  // Rename into place: a process that has the old file loaded keeps it.
  mkdirSync(path.dirname(options.out), { recursive: true });
  const partial = `${options.out}.${process.pid}.tmp`;
  copyFileSync(file, partial);
  renameSync(partial, options.out);
  return options.out;
}

let emulatedAddon: Promise<string> | undefined;

/** The emulated addon, for tests; the first call in a process builds it. */
export function ensureEmulatedAddon(): Promise<string> {
  emulatedAddon ??= build('addon', { emulated: true });
  return emulatedAddon;
}

/** Sources of a target. Every target has `kernels` and `engine`; an emulated one also has `emulation`, which replaces CUDA. */
function sourcesOf(target: Target, isEmulated: boolean, includes: Includes): string[] {
  const folders = ['kernels', 'engine', ...(isEmulated ? ['emulation'] : [])];
  const productSources = folders.flatMap((folder) => filesIn(folder, '*.{cu,cc}')).filter((file) => !isTest(file));
  const addon = filesIn('addon', '*.{cu,cc}').filter((file) => !isTest(file));
  switch (target) {
    case 'addon':
      return [...productSources, ...addon];
    case 'harness':
      return [...productSources, ...filesIn('harness', '*.{cu,cc}').filter((file) => !isTest(file))];
    case 'tests': {
      const testFolders = ['device', 'kernels', 'engine', 'addon', 'harness', ...(isEmulated ? ['emulation'] : [])];
      // Files that need Node cannot be linked into a program of their own; their tests are in TypeScript.
      const addonWithoutNode = addon.filter((file) => !includes.usesSystem(file, 'node_api.h'));
      const tests = testFolders.flatMap((folder) => filesIn(folder, '*.test.{cu,cc}'));
      return [...productSources, ...addonWithoutNode, ...tests, path.join(NATIVE, 'testing', 'main.cc')];
    }
  }
}

function filesIn(folder: string, pattern: string): string[] {
  return globSync(`${folder}/**/${pattern}`, { cwd: NATIVE })
    .sort()
    .map((file) => path.join(NATIVE, file));
}

/** Links a target into the cache, under a hash of its inputs. */
async function linkIntoCache(target: Target, objects: readonly string[], compiler: Compiler): Promise<string> {
  const args = target === 'addon' ? compiler.linkShared : compiler.link;
  const hash = createHash('sha256').update(JSON.stringify([compiler.program, compiler.version, args, objects]));
  const name = { addon: 'pie-cuda', tests: 'tests', harness: 'harness' }[target];
  const file = path.join(
    CACHE,
    'built',
    `${name}-${hash.digest('hex').slice(0, 24)}${target === 'addon' ? '.node' : ''}`,
  );
  if (!existsSync(file)) await link(objects, file, args, compiler);
  const now = new Date();
  utimesSync(file, now, now);
  return file;
}

/** A compiler for the card, or for the emulation on this machine's CPU. */
interface Compiler {
  readonly program: string;
  /** The program's own version text; part of each object's hash. */
  readonly version: string;
  readonly compile: readonly string[];
  /** Arguments for sources without card code; the compiler then reads them once instead of twice. */
  readonly compileHost: readonly string[];
  /**
   * Arguments that halve the compile time of tests without card code of their own. If absent, tests compile like other sources. The linker
   * takes the product's objects first, so inline functions of headers keep the product's optimisation.
   */
  readonly compileTest?: readonly string[];
  /** True if sources may share a header that is compiled once, as GCC does it. */
  readonly precompiles?: boolean;
  /** Arguments that keep the path of a clone out of the objects, because all clones share them. */
  readonly withoutRoot: (root: string) => readonly string[];
  /** Arguments that link a program. */
  readonly link: readonly string[];
  /** Arguments that link a library that Node loads. */
  readonly linkShared: readonly string[];
}

/** A compiler is missing or too old. The message tells the user how to get one. */
export class MissingCompilerError extends Error {
  override readonly name = 'MissingCompilerError';
}

const OLDEST_CUDA = 12;
export const DEFAULT_ARCH = 'sm_90a';

/** Path of nvcc: on PATH, under CUDA_HOME or CUDA_PATH, or in the folder of NVIDIA's packages. */
export function findNvcc(env: NodeJS.ProcessEnv = process.env): string | undefined {
  const homes = [env.CUDA_HOME, env.CUDA_PATH].filter((home) => home !== undefined && home !== '');
  const folders = [...(env.PATH ?? '').split(path.delimiter), ...homes.map((home) => path.join(`${home}`, 'bin'))];
  return [...folders, '/usr/local/cuda/bin']
    .map((folder) => path.join(folder, 'nvcc'))
    .find((file) => existsSync(file));
}

/** Architectures that a build may be for, with a card of each. */
export const ARCHITECTURES: Readonly<Record<string, string>> = {
  sm_80: 'A100',
  sm_86: 'A10, RTX 30',
  sm_89: 'L4, L40, RTX 40',
  sm_90a: 'H100, H200',
  sm_100: 'B200',
  sm_120: 'RTX 50',
};

/** 10 × major + minor of an architecture's compute capability. */
function capabilityOf(arch: string): number {
  if (Object.hasOwn(ARCHITECTURES, arch)) return Number.parseInt(arch.slice('sm_'.length), 10);
  const descriptions = Object.entries(ARCHITECTURES).map(([name, cards]) => `${name} (${cards})`);
  throw new MissingCompilerError(
    `"${arch}" is not an architecture of this backend. These are: ${descriptions.join(', ')}.`,
  );
}

/**
 * @param arch one of {@link ARCHITECTURES}
 * @param checkOnly true to find errors and warnings only: nvcc does not optimise card code, and makes no object of the host code in the same
 * source
 */
export function cardCompiler(arch: string, checkOnly = false): Compiler {
  const program = findNvcc();
  if (program === undefined) throw new MissingCompilerError(HOW_TO_GET_NVCC);
  const version = outputOf(program, ['--version']);
  const release = /release (\d+)\.(\d+)/.exec(version);
  if (release === null) throw new MissingCompilerError(`${program} does not run: ${version || 'it prints nothing'}`);
  if (Number(release[1]) < OLDEST_CUDA) {
    throw new MissingCompilerError(
      `${program} is CUDA ${release[1]}.${release[2]}; ${OLDEST_CUDA} or newer is needed.`,
    );
  }
  const target = `-gencode=arch=${arch.replace('sm_', 'compute_')},code=${arch}`;
  const capability = `-DPIE_CAPABILITY=${capabilityOf(arch)}`;
  // The level applies to host code; nvcc optimises card code fully.
  const common = ['-O2', '-std=c++17', capability, '-Xcompiler', '-fPIC,-Wall,-Wno-stringop-overflow'];
  return {
    program,
    version,
    compile: ['-x', 'cu', target, ...(checkOnly ? ['-cubin', '-Xcicc', '-O0', '-Xptxas', '-O0'] : []), ...common],
    compileHost: ['-x', 'c++', '-DPIE_CUDA', ...common],
    withoutRoot: () => [],
    link: [target, '-cudart', 'static', '-ldl', '-lpthread'],
    linkShared: [target, '-shared', '-cudart', 'static', '-ldl', '-lpthread'],
  };
}

const HOW_TO_GET_NVCC = `nvcc, the compiler of the CUDA toolkit, was not found on PATH, under CUDA_HOME or in /usr/local/cuda.
Install the toolkit (${OLDEST_CUDA} or newer; only the compiler and the runtime's headers are needed) from
https://developer.nvidia.com/cuda-downloads, or with the system's package manager ("apt-get install cuda-nvcc-13-0 cuda-cudart-dev-13-0"
from NVIDIA's repository), then try again. CUDA_HOME names a toolkit elsewhere.`;

/**
 * CXX, g++ or clang++: the first that builds and runs a program. With `sanitize`, every wrong address ends the run, and runs are slow. `arch`
 * names the emulated card.
 */
export function emulationCompiler(
  sanitize = false,
  arch = DEFAULT_ARCH,
  env: NodeJS.ProcessEnv = process.env,
): Compiler {
  const capability = `-DPIE_CAPABILITY=${capabilityOf(arch)}`;
  const namedCompilers = env.CXX === undefined || env.CXX === '' ? [] : [env.CXX];
  for (const program of [...namedCompilers, 'g++', 'clang++']) {
    const version = outputOf(program, ['--version']);
    if (version === '') continue;
    // A card refuses misaligned addresses. Where the sanitizer's library is installed, they end an emulated run, too.
    for (const checks of sanitize ? [SANITIZED] : [['-fsanitize=alignment', '-fno-sanitize-recover=all'], []]) {
      if (!builds(program, checks)) continue;
      const isMac = process.platform === 'darwin';
      const warnings = ['-Wall', '-Wextra', '-Wno-unknown-pragmas', '-Wno-pass-failed'];
      const common = ['-x', 'c++', '-std=c++17', '-fPIC', '-pthread', capability, ...warnings];
      const compileHost = [...common, '-O1'];
      return {
        program,
        version,
        compile: [...compileHost, ...checks],
        compileHost: sanitize ? [...compileHost, ...checks] : compileHost,
        ...(!sanitize && { compileTest: [...common, '-Og'] }),
        precompiles: version.includes('Free Software Foundation'),
        withoutRoot: (root) => [`-ffile-prefix-map=${root}${path.sep}=`],
        link: ['-pthread', ...(isMac ? [] : ['-ldl']), ...checks],
        linkShared: ['-shared', '-pthread', ...(isMac ? ['-undefined', 'dynamic_lookup'] : ['-ldl']), ...checks],
      };
    }
  }
  throw new MissingCompilerError(
    'g++ or clang++, which compiles the CUDA emulation of the tests, was not found. Install one ("apt-get install g++").',
  );
}

const SANITIZED = ['-fsanitize=address,undefined', '-fno-sanitize-recover=all', '-fno-omit-frame-pointer', '-g1'];

/** A program's output when it succeeds; empty when it cannot run. */
function outputOf(program: string, args: readonly string[]): string {
  const run = spawnSync(program, args, { encoding: 'utf8' });
  return run.status === 0 ? run.stdout : '';
}

function builds(program: string, checks: readonly string[]): boolean {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-compiler-'));
  try {
    const source = path.join(folder, 'probe.cc');
    writeFileSync(source, '#include <vector>\nint main() { return static_cast<int>(std::vector<int>().size()); }\n');
    const out = path.join(folder, 'probe');
    const compiled = spawnSync(program, ['-std=c++17', ...checks, source, '-o', out], { stdio: 'ignore' });
    return compiled.status === 0 && spawnSync(out, { stdio: 'ignore' }).status === 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
