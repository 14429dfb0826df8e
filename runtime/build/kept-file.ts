import { mkdir, readFile, utimes } from 'node:fs/promises';
import { dirname } from 'node:path';
import { sha256 } from './artifact/hash.ts';
import { publishFile } from './publish.ts';

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
