import { readdirSync, rmSync } from 'node:fs';
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

/** Deletes the files of an index's graphs, also incomplete ones, except the one up to the key `keptKey`. */
export async function removeGraphs(directory: string, keptKey?: number): Promise<void> {
  const files = await readdir(directory).catch(() => []);
  await Promise.all(otherGraphFiles(files, keptKey).map((file) => rm(path.join(directory, file), { force: true })));
}

/** Like {@link removeGraphs}, for an index that opens. */
export function removeGraphsSync(directory: string, keptKey?: number): void {
  for (const file of otherGraphFiles(readdirSync(directory), keptKey))
    rmSync(path.join(directory, file), { force: true });
}

const otherGraphFiles = (files: readonly string[], keptKey: number | undefined): string[] =>
  files.filter((file) => file.startsWith(PREFIX) && (keptKey === undefined || file !== graphFile(keptKey)));
