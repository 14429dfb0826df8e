import type { Dirent, Stats } from 'node:fs';
import { lstat, readdir, rm, rmdir, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';

/**
 * Compiled code that no process has loaded for this long is removed. With `relatime`, the usual option, a file system notes the time of a read at
 * most once a day. With `noatime` it notes none: code is then removed this long after it was written, and the next process compiles it again.
 */
const KEPT_MS = 30 * 24 * 3600 * 1000;
/** A search reads the times of every file: seconds of processor time where clones and releases have left tens of thousands. */
const SEARCHED_EVERY_MS = 24 * 3600 * 1000;
/** File of the folder whose time is that of the last whole search. */
const SEARCHED = 'searched';
/** Matches the folders that Node makes: its version, the processor, a hash of V8's version and flags, and the user. */
const NODE_FOLDER = /^v\d+\.\d+\.\d+-/;

/**
 * Names the folder in which the processes of this machine keep compiled code: the folder of the command line (`gateway/cli/bin.js`). A folder
 * that the environment already names, as with `npm start`, stays. Runtimes and sandboxes have folders of their own in it
 * (`runtime/permissions.ts`).
 */
export function keepCompiledCode(environment: NodeJS.ProcessEnv): void {
  const { XDG_CACHE_HOME, HOME } = environment;
  const caches = XDG_CACHE_HOME || (HOME && path.join(HOME, '.cache'));
  // Node does without a folder that it cannot write.
  if (caches) environment.NODE_COMPILE_CACHE ??= path.join(caches, 'pie', 'compile');
}

/**
 * Removes compiled code that has been unused for 30 days from this folder and that of the runtimes in it, once a day. Node itself removes nothing:
 * the code of earlier releases, versions of Node and clones would stay for good. Never throws: a file that cannot be removed stays.
 */
export async function forgetCompiledCode(folder: string, nowMs: number, signal: AbortSignal): Promise<void> {
  const searchMark = path.join(folder, SEARCHED);
  const lastSearch: Stats | null = await lstat(searchMark).catch(() => null);
  // A time in the future comes from a clock that has been set back.
  if (lastSearch !== null && Math.abs(nowMs - lastSearch.mtimeMs) < SEARCHED_EVERY_MS) return;
  for (const parent of [folder, path.join(folder, 'runtime')]) {
    for (const entry of await entriesOf(parent)) {
      if (!entry.isDirectory() || !NODE_FOLDER.test(entry.name)) continue;
      const versions = path.join(parent, entry.name);
      const isOld = await isUnused(versions, nowMs);
      for (const { name } of await entriesOf(versions)) {
        if (signal.aborted) return;
        await forgetUnused(path.join(versions, name), nowMs);
      }
      // Node makes its folder when a process starts, and writes to it when the process is ready or ends: an empty folder may belong to a process that starts.
      if (isOld) await rmdir(versions).catch(() => undefined);
    }
  }
  const now = new Date(nowMs);
  // A folder that does not exist yet, or that this process may not write, needs no search.
  await writeFile(searchMark, '').catch(() => undefined);
  await utimes(searchMark, now, now).catch(() => undefined);
}

/** Another process may remove the file first, or own it. */
async function forgetUnused(file: string, nowMs: number): Promise<void> {
  if (await isUnused(file, nowMs)) await rm(file, { force: true }).catch(() => undefined);
}

/** True for a file that was last read or written {@link KEPT_MS} ago or earlier, and for a folder whose entries last changed then. */
async function isUnused(entryPath: string, nowMs: number): Promise<boolean> {
  const stat: Stats | null = await lstat(entryPath).catch(() => null);
  if (!stat) return false;
  const usedMs = stat.isDirectory() ? stat.mtimeMs : Math.max(stat.atimeMs, stat.mtimeMs);
  return usedMs <= nowMs - KEPT_MS;
}

const entriesOf = (folder: string): Promise<Dirent[]> => readdir(folder, { withFileTypes: true }).catch(() => []);
