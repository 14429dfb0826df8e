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

/** Deletes the files of an index's graphs, also incomplete ones, except the one up to the key `kept`. */
export async function removeGraphs(directory: string, kept?: number): Promise<void> {
  const files = await readdir(directory).catch(() => []);
  await Promise.all(others(files, kept).map((file) => rm(path.join(directory, file), { force: true })));
}

/** Like {@link removeGraphs}, for an index that opens. */
export function removeGraphsSync(directory: string, kept?: number): void {
  for (const file of others(readdirSync(directory), kept)) rmSync(path.join(directory, file), { force: true });
}

const others = (files: readonly string[], kept: number | undefined): string[] =>
  files.filter((file) => file.startsWith(PREFIX) && (kept === undefined || file !== graphFile(kept)));
