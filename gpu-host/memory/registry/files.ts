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
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type ByteReader, FileDamage } from './file-format.ts';
import { directoryNameOf } from './names.ts';

const ENDING = '.kv';
/** Files being written: `tmp-<process id>-<random>`. */
const TEMPORARY = /^tmp-(\d+)-/;

/** The files of one model's snapshots: one directory a tenant, one file an entry, each written whole or not at all. */
export class SnapshotFiles {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
    mkdirSync(directory, { recursive: true });
  }

  /** Returns the bytes of all files. Removes half-written files of dead processes. */
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

  /** The entries' file names of a tenant. */
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

  /**
   * Writes a file under a temporary name and renames it once it is on disk. Asks `mayPublish` right before the rename, in the same turn:
   * false changes nothing. Calls `published` right after with the file's bytes. The promise resolves when the directory is on disk as well.
   */
  async write(
    tenant: string,
    fileName: string,
    parts: readonly Uint8Array[],
    mayPublish: () => boolean,
    published: (bytes: number) => void,
  ): Promise<void> {
    const directory = this.#tenantPath(tenant);
    await mkdir(directory, { recursive: true });
    const temporary = join(directory, `tmp-${process.pid}-${randomUUID()}`);
    try {
      const handle = await open(temporary, 'wx', 0o600);
      try {
        for (const part of parts) await handle.writeFile(part);
        await handle.sync();
      } finally {
        await handle.close();
      }
      if (!mayPublish()) return;
      renameSync(temporary, join(directory, fileName));
      published(parts.reduce((sum, part) => sum + part.length, 0));
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

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Runs before this process writes any file: one with its own id is left from an earlier process with that id. */
function isAbandoned(name: string): boolean {
  const pid = Number(TEMPORARY.exec(name)?.[1]);
  return pid === process.pid || (Number.isInteger(pid) && !isAlive(pid));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (cause) {
    return (cause as NodeJS.ErrnoException).code === 'EPERM';
  }
}
