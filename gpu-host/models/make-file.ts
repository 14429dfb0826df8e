import { randomUUID } from 'node:crypto';
import { readdir, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { withLock } from './lock.ts';

const PARTIAL = '.partial';

/**
 * Makes a file unless `isThere` finds it. `write` writes to a partial file, which then gets the name `file`, so that no process sees half a file.
 * When several processes need the file, one writes it, and the others wait.
 */
export async function makeFile(
  file: string,
  isThere: () => Promise<boolean>,
  write: (partial: string) => Promise<void>,
): Promise<void> {
  if (await isThere()) return;
  await withLock(`${file}.lock`, {}, async () => {
    if (await isThere()) return;
    await removePartials(file);
    const partial = `${file}.${randomUUID()}${PARTIAL}`;
    try {
      await write(partial);
      await rename(partial, file);
    } finally {
      await rm(partial, { force: true });
    }
  });
}

/**
 * Removes the partial files of killed processes. The caller holds the lock of `file`, so no running process writes these files. A partial file is
 * named `<file>.<UUID>.partial`. A further dot marks the partial file of another file, such as `<file>.x`, which stays.
 */
async function removePartials(file: string): Promise<void> {
  const [directory, prefix] = [dirname(file), `${basename(file)}.`];
  for (const entry of await readdir(directory)) {
    if (!entry.startsWith(prefix) || !entry.endsWith(PARTIAL)) continue;
    if (!entry.slice(prefix.length, -PARTIAL.length).includes('.')) await rm(join(directory, entry), { force: true });
  }
}
