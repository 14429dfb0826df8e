import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setInterval as everyInterval } from 'node:timers/promises';
import type { Logger } from '#scheduler/policies/logger.ts';
import { type ConfinedProgram, compileFlags, NODE_COMPILE_CACHE } from './command.ts';
import type { Layers } from './layers.ts';
import { folderUse, runConfined } from './run.ts';

/** Compiled code that confined processes load instead of compiling their sources. */
export interface CodeCache {
  /** Folder that confined processes read. The folder is missing until it is filled; until then, their starts take longer. */
  readonly directory: string;
  /** Resolves once the folder is there, or the run that fills it has failed. */
  readonly filled: Promise<void>;
}

/** A confined program's code. */
export interface ProgramCode {
  /** A run that loads the code and ends. It handles no untrusted bytes, because other confined processes execute the compiled code that it leaves. */
  readonly program: ConfinedProgram;
  /** Files and folders whose change leads to another cache; by default all that the program reads. */
  readonly sources?: readonly string[];
}

export interface CodeCacheOptions {
  /** Folder of this cache, below the compile cache of this process. */
  readonly folder: string;
  readonly code: ProgramCode;
  readonly layers: Layers;
  /** Ends the runs that fill the folder, and the checks. */
  readonly signal: AbortSignal;
  /** Gets the errors of runs and checks. No such error stops confined processes. */
  readonly log: Logger;
  /** Interval of the checks that the folder is there, which also mark it as used; a day by default. */
  readonly checkMs?: number;
}

const DAY_MS = 24 * 3600 * 1000;
/** Compiled code that no process has used for this long is removed. */
const KEPT_MS = 3 * DAY_MS;
const LIMITS = { timeoutMs: 120_000, memoryMb: 512 };
/** Age at which an unfinished folder is abandoned: the run that filled it has ended, or was killed with its starter. */
const UNFINISHED_MS = 5 * LIMITS.timeoutMs;
/** Bound on the files that the compiled code of one program takes. */
const MAX_NAMES = 10_000;

/**
 * Opens the compiled code of a confined program. If its folder is missing, a run of the program fills it in the background. Returns null if this
 * process cannot write the folder. Also returns null without namespaces: Node uses only a folder that its permissions let it write, and only a
 * mount can then make the folder read-only.
 */
export function openCodeCache(options: CodeCacheOptions): CodeCache | null {
  if (options.layers.isolation !== 'namespaces') return null;
  try {
    mkdirSync(options.folder, { recursive: true });
  } catch {
    return null;
  }
  const directory = join(options.folder, digestOf(options.code));
  void checkRepeatedly(directory, options);
  return { directory, filled: check(directory, options) };
}

/** Checks the folder again and again: other processes remove unmarked folders, and this process may start confined processes for weeks. */
async function checkRepeatedly(directory: string, options: CodeCacheOptions): Promise<void> {
  const { checkMs = DAY_MS, signal } = options;
  try {
    for await (const _ of everyInterval(checkMs, null, { signal, ref: false })) await check(directory, options);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Marks the folder as used, or fills it. */
async function check(directory: string, options: CodeCacheOptions): Promise<void> {
  const now = new Date();
  try {
    const isThere = await utimes(directory, now, now).then(
      () => true,
      () => false,
    );
    if (!isThere) await fill(directory, options);
    await removeUnused(options.folder, basename(directory), now);
  } catch (error) {
    if (!options.signal.aborted)
      options.log.warn({ error, folder: options.folder }, 'a cache of compiled code could not be filled');
  }
}

async function fill(directory: string, { folder, code: { program }, layers, signal }: CodeCacheOptions): Promise<void> {
  // Runs that fill the cache at the same time do not disturb each other: each has its own folder, and the folder of the run that ends first stays.
  const unfinished = join(folder, `.${randomUUID()}`);
  await mkdir(unfinished, { recursive: true });
  try {
    const environment = { ...program.environment, [NODE_COMPILE_CACHE]: unfinished };
    const { code, errors } = await runConfined(
      layers,
      { ...program, write: [...(program.write ?? []), unfinished], environment },
      { ...LIMITS, signal },
    );
    if (code !== 0) throw new Error(`no compiled code for sandboxes: ${errors.trim().split('\n').at(-1)}`);
    await assertStored(unfinished);
    await rename(unfinished, directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  } finally {
    await rm(unfinished, { recursive: true, force: true });
  }
}

/** Node does not report code that it failed to store. If the disk still has room for as many bytes, Node has stored all of its code. */
async function assertStored(folder: string): Promise<void> {
  const { bytes } = await folderUse(folder, MAX_NAMES);
  if (bytes === 0) throw new Error('Node stored no compiled code for sandboxes');
  const copy = join(folder, 'copy');
  // Random bytes, because a file system may compress others. The copy is not flushed: Node refuses `fsync` under its permission model.
  await writeFile(copy, randomBytes(bytes));
  await rm(copy);
}

/** Removes folders that no process has marked for long, and old unfinished ones; never `ownName`, which this process uses. */
async function removeUnused(folder: string, ownName: string, now: Date): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name === ownName) continue;
    const path = join(folder, name);
    // Another process may remove the folder at the same time.
    const usedAt = await stat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => now.getTime(),
    );
    const keptMs = name.startsWith('.') ? UNFINISHED_MS : KEPT_MS;
    if (usedAt < now.getTime() - keptMs) await rm(path, { recursive: true, force: true });
  }
}

/** Identifies the program's sources, the Node that compiles them and its flags. */
function digestOf({ program, sources = program.read }: ProgramCode): string {
  const hash = createHash('sha256').update(JSON.stringify([process.version, process.arch, compileFlags(program)]));
  for (const path of [program.main, ...sources]) {
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
