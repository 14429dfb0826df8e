import type { Dirent, Stats } from 'node:fs';
import { lstat, readdir, rm, rmdir, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';

/**
 * Compiled code that no process has loaded for this long is removed. With the usual mount option, `relatime`, a file system notes the time of a
 * read at most once a day. With `noatime` it notes none: code is then removed this long after it was written, and the next process compiles it again.
 */
const KEPT_MS = 30 * 24 * 3600 * 1000;
/**
 * Shortest time between two searches for unused code. A search reads the times of every file. If clones and releases have left tens of thousands of
 * files, it takes seconds of processor time.
 */
const SEARCHED_EVERY_MS = 24 * 3600 * 1000;
/** Name of an empty file in the searched folder. It was last changed at the time of the last complete search. */
const SEARCHED = 'searched';
/** Matches the names of the folders that Node makes: Node's version, the processor, a hash of V8's version and flags, and the user. */
const NODE_FOLDER = /^v\d+\.\d+\.\d+-/;

/**
 * Names the folder in which the platform's processes keep compiled code, in Node's variable `NODE_COMPILE_CACHE`. It is the folder of the `pie`
 * command (`gateway/cli/bin.js`), unless the environment already names one, as with `npm start`. Runtimes and the confined processes that they start
 * have folders of their own below it (`runtime/permissions.ts`, `runtime/runtime.ts`).
 */
export function keepCompiledCode(environment: NodeJS.ProcessEnv): void {
  const { XDG_CACHE_HOME, HOME } = environment;
  const caches = XDG_CACHE_HOME || (HOME && path.join(HOME, '.cache'));
  // When Node cannot write the folder, it compiles without a cache.
  if (caches) environment.NODE_COMPILE_CACHE ??= path.join(caches, 'pie', 'compile');
}

/**
 * Removes compiled code that has been unused for 30 days from `folder` and from the runtimes' folder below it. Does nothing when the last search was
 * less than a day ago. Node itself removes nothing: the code of other releases, versions of Node and clones would stay for good. Never throws: a
 * file that cannot be removed stays.
 */
export async function forgetCompiledCode(folder: string, nowMs: number, signal: AbortSignal): Promise<void> {
  const searchMark = path.join(folder, SEARCHED);
  const lastSearch: Stats | null = await lstat(searchMark).catch(() => null);
  // A mark of more than a day ahead counts as none: the clock has been set back since.
  if (lastSearch !== null && Math.abs(nowMs - lastSearch.mtimeMs) < SEARCHED_EVERY_MS) return;
  for (const parent of [folder, path.join(folder, 'runtime')]) {
    for (const entry of await entriesOf(parent)) {
      if (!entry.isDirectory() || !NODE_FOLDER.test(entry.name)) continue;
      const nodeFolder = path.join(parent, entry.name);
      // Look before the removals below, which change the folder's time.
      const isFolderUnused = await isUnused(nodeFolder, nowMs);
      for (const { name } of await entriesOf(nodeFolder)) {
        if (signal.aborted) return;
        await forgetUnused(path.join(nodeFolder, name), nowMs);
      }
      // Node makes the folder when a process starts, and writes to it later: an empty folder that is not old may belong to a running process.
      // A folder that still has files stays, because `rmdir` fails.
      if (isFolderUnused) await rmdir(nodeFolder).catch(() => undefined);
    }
  }
  const now = new Date(nowMs);
  // This fails when the folder does not exist or this process may not write it. The search then removed nothing, and the next call repeats it.
  await writeFile(searchMark, '').catch(() => undefined);
  await utimes(searchMark, now, now).catch(() => undefined);
}

/** Removes the file if it is unused. A failure is no fault: another process may have removed the file first, or own it. */
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
