import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, globSync, mkdirSync, renameSync, utimesSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { ADDON_FILE } from './addon.ts';
import { compileAll, forgetOld, Includes, link, SourceChangedError } from './build-cache.ts';
import { type Compiler, cardCompiler, emulationCompiler } from './build-tools.ts';

/** What is made of the sources: what Node loads, the C++ tests, or the program that checks and measures on a card. */
export type Target = 'addon' | 'tests' | 'harness';

export interface BuildOptions {
  /** For the CPU, with the emulation. Otherwise for the card. */
  readonly emulated: boolean;
  /** Of the emulation: every wrong address ends the run. */
  readonly sanitize?: boolean;
  readonly arch?: string;
  /** Where it goes. Otherwise it stays in the cache. */
  readonly out?: string;
  readonly jobs?: number;
  readonly onCompiled?: (source: string, done: number, of: number, warnings: string) => void;
  readonly extra?: readonly string[];
  /** What the compiler warns of is not accepted. */
  readonly strict?: boolean;
  /** In the time that nobody else wants. */
  readonly background?: boolean;
}

export const DEFAULT_ARCH = 'sm_90a';

const HERE = import.meta.dirname;
const ROOT = path.resolve(HERE, '../../..');
const NATIVE = path.join(HERE, 'native');
const CACHE = path.join(ROOT, 'node_modules', '.cache', 'cuda');
const KEPT_DAYS = 14;

/** Builds a target, or finds it built. @returns its file */
export async function build(target: Target, options: BuildOptions): Promise<string> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await buildOnce(target, options);
    } catch (error) {
      // Someone is at work; what is compiled already is kept.
      if (!(error instanceof SourceChangedError) || attempts === 5) throw error;
    }
  }
}

async function buildOnce(target: Target, options: BuildOptions): Promise<string> {
  const compiler = options.emulated ? emulationCompiler(options.sanitize) : cardCompiler(options.arch ?? DEFAULT_ARCH);
  const includes = new Includes(options.emulated ? undefined : path.join(NATIVE, 'emulation'));
  const sources = sourcesOf(target, options.emulated, includes);
  const objects = await compileAll(sources, {
    folder: path.join(CACHE, 'objects'),
    compiler,
    includes,
    includeFolders: [path.join(ROOT, 'node_modules', 'node-api-headers', 'include')],
    language: [path.join(NATIVE, 'device', 'device.h'), path.join(NATIVE, 'emulation') + path.sep],
    jobs: options.jobs ?? os.availableParallelism(),
    extra: options.extra ?? [],
    strict: options.strict ?? false,
    background: options.background ?? false,
    onCompiled: options.onCompiled ?? (() => undefined),
  });
  const file = await linked(target, objects, compiler);
  forgetOld(path.join(CACHE, 'objects'), KEPT_DAYS);
  forgetOld(path.join(CACHE, 'built'), KEPT_DAYS);
  if (options.out === undefined) return file;
  // A process may have the old one loaded: it keeps that.
  mkdirSync(path.dirname(options.out), { recursive: true });
  const partial = `${options.out}.${process.pid}.tmp`;
  copyFileSync(file, partial);
  renameSync(partial, options.out);
  return options.out;
}

let emulatedAddon: Promise<string> | undefined;

/** The emulated addon, for tests: built once for the sources as they are, whoever asks first. */
export function ensureEmulatedAddon(): Promise<string> {
  emulatedAddon ??= build('addon', { emulated: true });
  return emulatedAddon;
}

export { ADDON_FILE };

/** Sources of a target. `kernels` and `engine` are in all of them; the emulation takes the card's place. */
function sourcesOf(target: Target, emulated: boolean, includes: Includes): string[] {
  const folders = ['kernels', 'engine', ...(emulated ? ['emulation'] : [])];
  const product = folders.flatMap((folder) => filesIn(folder, '*.{cu,cc}')).filter((file) => !isTest(file));
  const addon = filesIn('addon', '*.{cu,cc}').filter((file) => !isTest(file));
  switch (target) {
    case 'addon':
      return [...product, ...addon];
    case 'harness':
      return [...product, ...filesIn('harness', '*.{cu,cc}').filter((file) => !isTest(file))];
    case 'tests': {
      const cases = ['device', 'kernels', 'engine', 'addon', 'harness', ...(emulated ? ['emulation'] : [])];
      // What needs Node cannot be linked into a program of its own; it has its tests in TypeScript.
      const plain = addon.filter((file) => !includes.usesSystem(file, 'node_api.h'));
      const tests = cases.flatMap((folder) => filesIn(folder, '*.test.{cu,cc}'));
      return [...product, ...plain, ...tests, path.join(NATIVE, 'testing', 'main.cc')];
    }
  }
}

function filesIn(folder: string, pattern: string): string[] {
  return globSync(`${folder}/**/${pattern}`, { cwd: NATIVE })
    .sort()
    .map((file) => path.join(NATIVE, file));
}

function isTest(file: string): boolean {
  return /\.test\.(cu|cc)$/.test(file);
}

/** Links into the cache, under a hash of what goes in. */
async function linked(target: Target, objects: readonly string[], compiler: Compiler): Promise<string> {
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
