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
import os from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import type { Compiler } from './build-tools.ts';

/** What a source includes with quotes, and what those include. Headers of the system and of packages are not followed. */
export class Includes {
  readonly #direct = new Map<string, { text: Buffer; includes: readonly string[]; system: readonly string[] }>();
  readonly #leftOut: string | undefined;

  /** @param leftOut a folder whose headers are not used, whoever names them */
  constructor(leftOut?: string) {
    this.#leftOut = leftOut;
  }

  /** The same, of the files as they are now. */
  again(): Includes {
    return new Includes(this.#leftOut);
  }

  /** The source and all its headers, in a fixed order. */
  of(source: string): readonly string[] {
    const seen = new Set([source]);
    // The set grows while it is walked.
    for (const file of seen) for (const next of this.#read(file).includes) seen.add(next);
    return [...seen];
  }

  /** Whether it includes a header of this name with angle brackets, somewhere. */
  usesSystem(source: string, header: string): boolean {
    return this.of(source).some((file) => this.#read(file).system.includes(header));
  }

  text(file: string): Buffer {
    return this.#read(file).text;
  }

  #read(file: string) {
    const known = this.#direct.get(file);
    if (known !== undefined) return known;
    const text = readFileSync(file);
    const includes: string[] = [];
    const system: string[] = [];
    for (const [, open, name = ''] of text.toString('utf8').matchAll(/^\s*#\s*include\s*(["<])([^">]+)[">]/gm)) {
      const next = path.resolve(path.dirname(file), name);
      if (this.#leftOut !== undefined && next.startsWith(this.#leftOut + path.sep)) continue;
      if (open === '"' && existsSync(next)) includes.push(next);
      else system.push(name);
    }
    const read = { text, includes, system };
    this.#direct.set(file, read);
    return read;
  }
}

/** A source could not be compiled or linked. The message is the compiler's. */
export class BuildError extends Error {
  override readonly name: string = 'BuildError';
}

/** A source, or a header of it, changed while it was compiled. */
export class SourceChangedError extends BuildError {
  override readonly name = 'SourceChangedError';
  constructor(source: string) {
    super(`${source}, or a header of it, changed while it was compiled`);
  }
}

export interface ObjectCacheOptions {
  /** Where objects are kept, by a hash of all that they are made of. */
  readonly folder: string;
  readonly compiler: Compiler;
  readonly includes: Includes;
  readonly includeFolders: readonly string[];
  /** Where the headers are that define the words of CUDA: that they are in there says nothing. Beginnings of paths. */
  readonly language: readonly string[];
  /** Files that are compiled at the same time. */
  readonly jobs: number;
  readonly onCompiled: (source: string, done: number, of: number, warnings: string) => void;
  /** Further arguments, such as `-Xptxas -v`. */
  readonly extra: readonly string[];
  /** What the compiler warns of is an error. */
  readonly strict: boolean;
  /** Compilations get the time that nobody else wants. */
  readonly background: boolean;
}

/** Compiles what is not there yet, several at a time; what another process compiles meanwhile is waited for. Returns the objects in the sources' order. */
export async function compileAll(sources: readonly string[], options: ObjectCacheOptions): Promise<string[]> {
  const { folder, compiler, includes } = options;
  mkdirSync(folder, { recursive: true });
  const pairs = sources.map((source) => {
    const args = argumentsOf(source, includes, options);
    return { source, args, object: objectOf(source, includes, args, options) };
  });
  const missing = () => pairs.filter(({ object }) => !existsSync(object));
  if (missing().length > 0) {
    const release = await lock(path.join(folder, `${path.basename(compiler.program)}.lock`));
    try {
      await compileMissing(missing(), options);
    } finally {
      release();
    }
  }
  const objects = pairs.map(({ object }) => object);
  const now = new Date();
  for (const object of objects) utimesSync(object, now, now);
  return objects;
}

/** What runs on the card is in a source, or in a header of it. */
const CARD_CODE = /__(global|device|shared)__|\bLAUNCH\s*\(/;

function argumentsOf(source: string, includes: Includes, options: ObjectCacheOptions): string[] {
  const { compiler, includeFolders, extra, language } = options;
  const files = includes.of(source).filter((file) => !language.some((start) => file.startsWith(start)));
  const card = files.some((file) => CARD_CODE.test(includes.text(file).toString()));
  return [...(card ? compiler.compile : compiler.compileHost), ...includeFolders.map((one) => `-I${one}`), ...extra];
}

/** Where a source's object is: under a hash of the compiler, its arguments, the source and its headers. */
function objectOf(
  source: string,
  includes: Includes,
  args: readonly string[],
  { folder, compiler }: ObjectCacheOptions,
): string {
  const hash = createHash('sha256').update(JSON.stringify([compiler.program, compiler.version, args]));
  for (const file of includes.of(source)) hash.update(`${path.basename(file)}\0`).update(includes.text(file));
  return path.join(folder, `${path.basename(source)}-${hash.digest('hex').slice(0, 24)}.o`);
}

async function compileMissing(
  missing: { source: string; args: readonly string[]; object: string }[],
  options: ObjectCacheOptions,
): Promise<void> {
  const { compiler, includes, jobs, onCompiled, strict, background } = options;
  // The largest first: they take longest.
  missing.sort((a, b) => statSync(b.source).size - statSync(a.source).size);
  const total = missing.length;
  let done = 0;
  const errors: string[] = [];
  let changed: string | undefined;
  const worker = async () => {
    for (let next = missing.shift(); next !== undefined; next = missing.shift()) {
      // Under its final name only when it is whole.
      const partial = `${next.object}.tmp`;
      const { status, output } = await run(
        compiler.program,
        [...next.args, '-c', next.source, '-o', partial],
        background,
      );
      if (status !== 0 || (strict && output !== '')) errors.push(output || `${compiler.program} ended with ${status}`);
      else if (objectOf(next.source, includes.again(), next.args, options) !== next.object) changed = next.source;
      if (errors.length > 0 || changed !== undefined) {
        rmSync(partial, { force: true });
        missing.length = 0;
        return;
      }
      renameSync(partial, next.object);
      onCompiled(next.source, ++done, total, output);
    }
  };
  await Promise.all(Array.from({ length: Math.min(jobs, total) }, worker));
  if (errors.length > 0) throw new BuildError(errors.join('\n'));
  if (changed !== undefined) throw new SourceChangedError(changed);
}

const LOCK_RETRY_MS = 50;
const LOCK_UNSIGNED_MS = 5000;

/** Waits until no other process that lives holds the file. Returns what gives it back. */
async function lock(file: string): Promise<() => void> {
  for (;;) {
    try {
      writeFileSync(file, String(process.pid), { flag: 'wx' });
      return () => rmSync(file, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const holder = Number(readText(file));
    // Left behind by a process that was ended, maybe before it wrote its number.
    const age = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Date.now());
    if (holder > 0 ? !isAlive(holder) : age > LOCK_UNSIGNED_MS) rmSync(file, { force: true });
    else await setTimeout(LOCK_RETRY_MS);
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Links objects into a program or a library, unless `out` is there. */
export async function link(
  objects: readonly string[],
  out: string,
  args: readonly string[],
  compiler: Compiler,
): Promise<void> {
  mkdirSync(path.dirname(out), { recursive: true });
  const partial = `${out}.${process.pid}.tmp`;
  const { status, output } = await run(compiler.program, [...objects, '-o', partial, ...args]);
  if (status !== 0) {
    rmSync(partial, { force: true });
    throw new BuildError(output || `${compiler.program} ended with ${status}`);
  }
  renameSync(partial, out);
}

/** Removes what no build has used for `days` days. */
export function forgetOld(folder: string, days: number): void {
  if (!existsSync(folder)) return;
  const oldest = Date.now() - days * 24 * 3600 * 1000;
  for (const name of readdirSync(folder)) {
    const file = path.join(folder, name);
    if ((statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY) < oldest)
      rmSync(file, { force: true });
  }
}

/** Runs a program and returns all that it prints. */
async function run(
  program: string,
  args: readonly string[],
  background = false,
): Promise<{ status: number | null; output: string }> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  if (background && child.pid !== undefined) yieldTime(child.pid);
  const parts: Buffer[] = [];
  child.stdout.on('data', (part: Buffer) => parts.push(part));
  child.stderr.on('data', (part: Buffer) => parts.push(part));
  const status = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return { status, output: Buffer.concat(parts).toString('utf8').trim() };
}

function yieldTime(pid: number): void {
  try {
    os.setPriority(pid, os.constants.priority.PRIORITY_LOW);
  } catch {
    // It ended already, or this system knows no priorities.
  }
}
