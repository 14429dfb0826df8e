import { type Dirent, constants as FS } from 'node:fs';
import { mkdir, open, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { backup as copyDatabase, DatabaseSync } from 'node:sqlite';
import type { ArchiveWriter } from './archive.ts';
import { isKeptFile } from './entries.ts';

const PART_BYTES = 1 << 20;
/** Result code of SQLite for a full disk. */
const SQLITE_FULL = 13;
/** Folders of the home whose files a backup has. */
const FOLDERS = ['kv', 'indexes'];

/** Paths of the kept files relative to the home, with slashes. */
export async function* keptFiles(home: string): AsyncGenerator<string> {
  for (const folder of FOLDERS) yield* below(home, folder);
}

async function* below(home: string, folder: string): AsyncGenerator<string> {
  for (const entry of await entriesOf(path.join(home, folder))) {
    const relativePath = `${folder}/${entry.name}`;
    if (entry.isDirectory()) yield* below(home, relativePath);
    else if (entry.isFile() && isKeptFile(relativePath)) yield relativePath;
  }
}

async function entriesOf(directory: string): Promise<Dirent[]> {
  try {
    return await readdir(directory, { withFileTypes: true });
  } catch (error) {
    if (isGone(error)) return [];
    throw error;
  }
}

/**
 * Adds a file of the home as of one moment; returns false when the file was deleted meanwhile. KV files never change, since each
 * gets its name only once it is complete. A database is copied including the contents of its write-ahead log.
 * @param scratch folder for the copy of a database
 * @throws Error with the code `ENOSPC` when the disk of the archive or of `scratch` is full
 */
export async function addFile(
  archive: ArchiveWriter,
  home: string,
  relativePath: string,
  scratch: string,
): Promise<boolean> {
  const file = path.join(home, relativePath);
  if (!relativePath.endsWith('.db')) return addBytes(archive, file, relativePath);
  const copy = path.join(scratch, 'records.db');
  try {
    return (await copied(file, copy)) && (await addBytes(archive, copy, relativePath));
  } finally {
    await rm(copy, { force: true });
  }
}

/** Copies a database; returns false when it was deleted meanwhile. */
async function copied(file: string, copy: string): Promise<boolean> {
  try {
    const database = new DatabaseSync(file, { readOnly: true });
    try {
      // Copy all pages in one step: between two steps, a write would make the copy begin again.
      await copyDatabase(database, copy, { rate: 2 ** 30 });
    } finally {
      database.close();
    }
    return true;
  } catch (error) {
    if (isGone(error) || !(await exists(file))) return false;
    if ((error as { errcode?: number }).errcode !== SQLITE_FULL) throw error;
    throw Object.assign(new Error(`The disk is full: ${file} cannot be copied`, { cause: error }), { code: 'ENOSPC' });
  }
}

async function addBytes(archive: ArchiveWriter, file: string, relativePath: string): Promise<boolean> {
  let handle: Awaited<ReturnType<typeof open>>;
  try {
    handle = await open(file, FS.O_RDONLY | FS.O_NOFOLLOW);
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
  try {
    const { size } = await handle.stat();
    await archive.add({ kind: 'file', path: relativePath, bytes: size });
    for (let from = 0; from < size; ) {
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(Math.min(PART_BYTES, size - from)), 0, null, from);
      if (bytesRead === 0) throw new Error(`${file} became shorter while it was read`);
      await archive.add({ kind: 'part' }, buffer.subarray(0, bytesRead));
      from += bytesRead;
    }
    return true;
  } finally {
    await handle.close();
  }
}

/** Writes files of a backup into a home that does not have them yet. */
export class FileRestorer {
  readonly #home: string;
  #openFile: Awaited<ReturnType<typeof open>> | undefined;

  constructor(home: string) {
    this.#home = home;
  }

  async begin(relativePath: string): Promise<void> {
    await this.end();
    const file = path.join(this.#home, relativePath);
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    this.#openFile = await open(file, 'wx', 0o600);
  }

  async write(bytes: Buffer): Promise<void> {
    await this.#openFile?.writeFile(bytes);
  }

  async end(): Promise<void> {
    await this.#openFile?.sync();
    await this.#openFile?.close();
    this.#openFile = undefined;
  }
}

/** Removes the folders of the home whose files a backup contains. */
export async function removeFiles(home: string): Promise<void> {
  for (const folder of FOLDERS) await rm(path.join(home, folder), { recursive: true, force: true, maxRetries: 5 });
}

async function exists(file: string): Promise<boolean> {
  return (await entriesOf(path.dirname(file))).some(({ name }) => name === path.basename(file));
}

const isGone = (error: unknown): boolean => ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');
