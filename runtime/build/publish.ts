import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { mkdir, open, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sha256 } from './artifact/artifact.ts';

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

/** Path of the file with the hash of a kept file. */
const hashPath = (path: string): string => `${path}.sha256`;

/**
 * Keeps a file for later builds, with its hash beside it. Node's permission model forbids a build to sync files, so a power loss can leave an
 * empty file under the final name. Readers recognise such a file by its hash.
 */
export async function keepFile(path: string, bytes: Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await publishFile(path, bytes);
  await publishFile(hashPath(path), Buffer.from(sha256(bytes)));
}

/** Reads a kept file and sets its time to now: cleaning the store removes the least recently used files. Null when it is missing or damaged. */
export async function readKeptFile(path: string): Promise<Uint8Array | null> {
  const files = [path, hashPath(path)];
  const now = new Date();
  // Ignore errors: only the owner of a file may set its times.
  await Promise.all(files.map((file) => utimes(file, now, now).catch(() => undefined)));
  const [bytes, hash] = await Promise.all(files.map((file) => readFile(file).catch(() => null)));
  return bytes && hash && sha256(bytes) === String(hash) ? bytes : null;
}

/** Maximum bytes of each file that describes an artifact: artifact.json, the plan, the measured starts. */
export const MAX_DESCRIPTION_BYTES = 8 << 20;

/**
 * Reads a file that an untrusted process may have made. Such a process can also leave a link, a pipe that never opens, or a file of any length.
 *
 * @throws Error when the path is not a regular file of at most `maxBytes`
 */
export async function readPlainFile(path: string, maxBytes: number): Promise<Buffer> {
  // Without O_NONBLOCK, opening a pipe holds a thread of this process until a writer comes.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const info = await file.stat();
    if (!info.isFile()) throw new Error(`${path} is not a regular file`);
    if (info.size > maxBytes) throw new Error(`${path} has ${info.size} bytes; ${maxBytes} is the limit`);
    return await file.readFile();
  } finally {
    await file.close();
  }
}
