import { lstat, opendir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { residentBytes } from './resident.ts';

/** Bound on the inspected threads of one tree. A larger tree is a fork bomb, whose first processes suffice. */
const MAX_THREADS = 1024;

/** Use of a process and its descendants. */
export interface TreeUse {
  /** Resident memory. */
  readonly memoryBytes: number;
  /**
   * Bytes that the living processes, and the children that they waited for, wrote to files and pipes. Includes files without a name and writing
   * through mapped memory.
   */
  readonly writtenBytes: number;
}

/** Reads the use of a process and its descendants from /proc. Numbers that are missing there count as 0. */
export async function treeUse(root: number): Promise<TreeUse> {
  const pending = [root];
  let [memoryBytes, writtenBytes, threads] = [0, 0, 0];
  for (let pid = pending.pop(); pid !== undefined && threads < MAX_THREADS; pid = pending.pop()) {
    // A process may end between two reads.
    const [status, io, tasks] = await Promise.all([
      readFile(`/proc/${pid}/status`, 'utf8').catch(() => ''),
      readFile(`/proc/${pid}/io`, 'utf8').catch(() => ''),
      readdir(`/proc/${pid}/task`).catch(() => []),
    ]);
    memoryBytes += residentBytes(status);
    // `wchar` misses writing through mapped memory; `write_bytes` misses file systems without a device.
    writtenBytes += Math.max(ioCount(io, 'wchar'), ioCount(io, 'write_bytes'));
    // The kernel lists a child under the thread that made it.
    for (const task of tasks.slice(0, MAX_THREADS - threads)) {
      const children = await readFile(`/proc/${pid}/task/${task}/children`, 'utf8').catch(() => '');
      pending.push(...children.split(' ').filter(Boolean).map(Number));
    }
    threads += Math.max(1, tasks.length);
  }
  return { memoryBytes, writtenBytes };
}

const ioCount = (io: string, name: string): number => Number(new RegExp(`^${name}: (\\d+)$`, 'm').exec(io)?.[1] ?? 0);

/** Use of a folder: the lengths of all entries that are no folders, and the number of all entries. */
export interface FolderUse {
  readonly bytes: number;
  readonly names: number;
}

/**
 * Measures a folder that an untrusted process writes, and stops counting after `maxNames`. A part that cannot be read, for example because its
 * path is too long, counts as too many names.
 */
export async function folderUse(root: string, maxNames: number): Promise<FolderUse> {
  const pending = [root];
  let [bytes, names] = [0, 0];
  try {
    for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
      for await (const entry of (await unlessGone(opendir(path))) ?? []) {
        names += 1;
        if (names > maxNames) return { bytes, names };
        const inside = join(path, entry.name);
        if (entry.isDirectory()) pending.push(inside);
        else bytes += (await unlessGone(lstat(inside)))?.size ?? 0;
      }
    }
    return { bytes, names };
  } catch {
    return { bytes, names: Number.POSITIVE_INFINITY };
  }
}

const unlessGone = <T>(read: Promise<T>): Promise<T | null> =>
  read.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw error;
  });
