import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, globSync, mkdirSync, renameSync, utimesSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { compileAll, forgetOld, Includes, isTest, link, SourceChangedError } from './build-cache.ts';
import { type Compiler, cardCompiler, DEFAULT_ARCH, emulationCompiler } from './build-tools.ts';

/** A build product: the addon that Node loads, the C++ tests, or the harness that checks and measures on a card. */
export type Target = 'addon' | 'tests' | 'harness';

export interface BuildOptions {
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
