import { randomUUID } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isAlive } from '../../process-alive.ts';
import { type ByteReader, FileDamage, type PieceReader } from './file-format.ts';
import { directoryNameOf } from './names.ts';

/** Writes bytes at an offset of a file. */
export type PieceWriter = (offset: number, bytes: Uint8Array) => Promise<void>;

const ENDING = '.kv';
/** Files being written: `tmp-<process id>-<random>`. */
const TEMPORARY = /^tmp-(\d+)-/;

/** The files of one model's snapshots: a directory for each tenant, a file for each entry, written whole or not at all. */
export class SnapshotFiles {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
    mkdirSync(directory, { recursive: true });
  }

  /** Removes half-written files of dead processes. @returns the bytes of all other files together */
  sweep(): number {
    let bytes = 0;
    for (const tenant of names(this.directory)) {
      for (const name of names(join(this.directory, tenant))) {
        const path = join(this.directory, tenant, name);
        if (name.endsWith(ENDING)) bytes += statSync(path).size;
        else if (isAbandoned(name)) rmSync(path, { force: true });
      }
    }
    return bytes;
  }

  /** File names of a tenant's entries. */
  list(tenant: string): string[] {
    return names(this.#tenantPath(tenant)).filter((name) => name.endsWith(ENDING));
  }

  /** Calls `body` with a reader of the file and its size. @throws FileDamage when the file ends early; file system errors */
  read<T>(tenant: string, fileName: string, body: (read: ByteReader, size: number) => T): T {
    const fd = openSync(join(this.#tenantPath(tenant), fileName), 'r');
    try {
      return body((offset, length) => readExactly(fd, offset, length), fstatSync(fd).size);
    } finally {
      closeSync(fd);
    }
  }

  /** As `read`, but does not block the thread. */
  async readPieces<T>(
    tenant: string,
    fileName: string,
    body: (read: PieceReader, size: number) => Promise<T>,
  ): Promise<T> {
    const handle = await open(join(this.#tenantPath(tenant), fileName), 'r');
    try {
      return await body((offset, into) => readWhole(handle, offset, into), (await handle.stat()).size);
    } finally {
      await handle.close();
    }
  }

  /**
   * Makes a file under a temporary name, lets `fill` write its content, and renames it once it is on disk. Calls `mayPublish` after `fill`, and
   * again just before the rename: when it returns false, the new file is removed and the former file stays. Calls `published` with the file's
   * size right after the rename. The promise resolves when the directory is on disk as well.
   */
  async write(
    tenant: string,
    fileName: string,
    fill: (write: PieceWriter) => Promise<void>,
    mayPublish: () => boolean,
    published: (bytes: number) => void,
  ): Promise<void> {
    const directory = this.#tenantPath(tenant);
    await mkdir(directory, { recursive: true });
    const temporary = join(directory, `tmp-${process.pid}-${randomUUID()}`);
    try {
      const bytes = await writeTemporary(temporary, fill, mayPublish);
      if (!mayPublish()) return;
      renameSync(temporary, join(directory, fileName));
      published(bytes);
    } finally {
      await rm(temporary, { force: true });
    }
    await syncDirectory(directory);
    await syncDirectory(this.directory);
  }

  remove(tenant: string, fileName: string): void {
    rmSync(join(this.#tenantPath(tenant), fileName), { force: true });
  }

  #tenantPath(tenant: string): string {
    return join(this.directory, directoryNameOf(tenant));
  }
}

function names(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw cause;
  }
}

function readExactly(fd: number, offset: number, length: number): Buffer {
  const buffer = Buffer.allocUnsafe(length);
  for (let done = 0; done < length; ) {
    const read = readSync(fd, buffer, done, length - done, offset + done);
    if (read === 0) throw new FileDamage(`it ends before byte ${offset + length}`);
    done += read;
  }
  return buffer;
}

/** Makes a file, and syncs it to the disk if it is still wanted. @returns its size in bytes */
async function writeTemporary(
  path: string,
  fill: (write: PieceWriter) => Promise<void>,
  isWanted: () => boolean,
): Promise<number> {
  const handle = await open(path, 'wx', 0o600);
  try {
    let size = 0;
    await fill(async (offset, bytes) => {
      size = Math.max(size, offset + bytes.length);
      await writeWhole(handle, offset, bytes);
    });
    if (isWanted()) await handle.sync();
    return size;
  } finally {
    await handle.close();
  }
}

async function writeWhole(handle: FileHandle, offset: number, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, offset + done);
    done += bytesWritten;
  }
}

async function readWhole(handle: FileHandle, offset: number, into: Uint8Array): Promise<void> {
  for (let done = 0; done < into.length; ) {
    const { bytesRead } = await handle.read(into, done, into.length - done, offset + done);
    if (bytesRead === 0) throw new FileDamage(`it ends before byte ${offset + into.length}`);
    done += bytesRead;
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** True for a temporary file of an earlier process. Called before this process writes any file: an earlier process may have had the same id. */
function isAbandoned(name: string): boolean {
  const pid = Number(TEMPORARY.exec(name)?.[1]);
  return pid === process.pid || (Number.isInteger(pid) && !isAlive(pid));
}
