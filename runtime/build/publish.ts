import { randomBytes } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';

/** Moves a finished folder to its place in one step. When another process was first, its folder stays, because both have the same content. */
export async function publishDirectory(from: string, to: string): Promise<void> {
  if (!(await moveDirectory(from, to))) await rm(from, { recursive: true, force: true });
}

/** Moves a folder to its place in one step; false, without a change, when a folder with content is there. */
export async function moveDirectory(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
    return false;
  }
}

/** Writes a file in one step: other processes see the old file or the whole new one. */
export async function publishFile(path: string, bytes: Uint8Array): Promise<void> {
  const temporary = `${path}.${process.pid}-${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(temporary, bytes);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}
