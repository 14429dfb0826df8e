import { createHash, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type ConfinedProgram, compileFlags, NODE_COMPILE_CACHE } from './command.ts';
import type { Layers } from './layers.ts';
import { runConfined } from './run.ts';

/** Compiled code that confined processes load instead of compiling their sources. */
export interface CodeCache {
  /** Folder that confined processes read. It is missing until it is filled, which changes nothing but the time that they take. */
  readonly directory: string;
  /** Resolves once the folder is there. */
  readonly filled: Promise<void>;
}

export interface CodeCacheOptions {
  /** Folder of this cache, below the compile cache of this process. */
  readonly folder: string;
  /** Loads its code and ends. It handles no untrusted bytes, because other confined processes run what it leaves. */
  readonly program: ConfinedProgram;
  readonly layers: Layers;
  readonly signal: AbortSignal;
}

/** Compiled code that no start has used for this long is removed. */
const KEPT_MS = 3 * 24 * 3600 * 1000;
const LIMITS = { timeoutMs: 120_000, memoryMb: 512 };

/**
 * Opens the compiled code of a confined program. A run of the program in the background fills it, if need be. Null where this process cannot
 * write the folder, and without namespaces: Node uses no folder that its permissions do not let it write, and only a mount refuses that then.
 */
export function openCodeCache(options: CodeCacheOptions): CodeCache | null {
  if (options.layers.isolation !== 'namespaces') return null;
  try {
    mkdirSync(options.folder, { recursive: true });
  } catch {
    return null;
  }
  const directory = join(options.folder, digestOf(options.program));
  return { directory, filled: fill(directory, options) };
}

async function fill(directory: string, { folder, program, layers, signal }: CodeCacheOptions): Promise<void> {
  const now = new Date();
  const known = await utimes(directory, now, now).then(
    () => true,
    () => false,
  );
  if (known) return;
  // Runs that fill it at the same time do not meet: each has a folder of its own, and that of the first one to end stays.
  const unfinished = join(folder, `.${randomUUID()}`);
  await mkdir(unfinished);
  try {
    const environment = { ...program.environment, [NODE_COMPILE_CACHE]: unfinished };
    const { code, errors } = await runConfined(
      layers,
      { ...program, write: [...(program.write ?? []), unfinished], environment },
      { ...LIMITS, signal },
    );
    if (code !== 0) throw new Error(`no compiled code for sandboxes: ${errors.trim().split('\n').at(-1)}`);
    await rename(unfinished, directory).catch(() => undefined);
    await removeUnused(folder, now);
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

async function removeUnused(folder: string, now: Date): Promise<void> {
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    // Another process may remove it at the same time.
    const usedAt = await stat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => now.getTime(),
    );
    if (usedAt < now.getTime() - KEPT_MS) await rm(path, { recursive: true, force: true });
  }
}

/** Identifies the program's sources, the Node that compiles them and its flags. */
function digestOf(program: ConfinedProgram): string {
  const hash = createHash('sha256').update(JSON.stringify([process.version, process.arch, compileFlags(program)]));
  for (const path of [program.main, ...program.read]) {
    for (const file of sourcesIn(path)) {
      const { size, mtimeMs } = statSync(file);
      hash.update(`${file}\0${size}\0${mtimeMs}\0`);
    }
  }
  return hash.digest('hex').slice(0, 32);
}

function sourcesIn(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  const names = readdirSync(path, { recursive: true, encoding: 'utf8' });
  return names
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .sort()
    .map((name) => join(path, name));
}
