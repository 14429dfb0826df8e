import { open, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';

const PREFIX = 'graph-';

/** Name of the file of a graph that has every entry up to a key. */
export const graphFile = (key: number): string => `${PREFIX}${key}.usearch`;

/** Writes `<file>.new` through to the disk, and gives it the name `file`. */
export async function publishGraph(file: string): Promise<void> {
  const handle = await open(`${file}.new`, 'r+');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
  await rename(`${file}.new`, file);
}

/** Deletes the files of an index's graphs, also incomplete ones, except the file `kept`. */
export async function removeGraphs(directory: string, kept?: string): Promise<void> {
  const files = await readdir(directory).catch(() => []);
  const old = files.filter((file) => file.startsWith(PREFIX) && file !== kept);
  await Promise.all(old.map((file) => rm(path.join(directory, file), { force: true })));
}
