import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import fs, { type FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { DurableCopy, DurableNames, OwnedName } from '#scheduler/exports/exports.ts';

/** Length of a file's header: a text that describes the copy, then zero bytes. The bytes of the copy follow. */
const HEADER_BYTES = 4096;
const FORMAT = 'pie durable copy 1';
/**
 * With `O_SYNC`, a write ends when its bytes and the new file's entry in its folder are on the storage. `fsync` is no alternative: Node disables
 * it under its permission model.
 * A file counts once an entry in Redis names it, so an unfinished file needs no temporary name.
 */
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_SYNC;
/** Maximum number of files that one sweep examines: each transfer of a copy sweeps, and a sweep should take no longer than the transfer. */
const MAX_SWEPT_FILES = 64;
/** A file that no entry names and that is older than this is abandoned: no transfer can still be writing it. */
const ABANDONED_MS = 60 * 60_000;

/** A shared directory that cannot be used. The message is for the operator. */
export class SharedDirectoryError extends Error {
  override readonly name = 'SharedDirectoryError';
}

/** Reads and notes in Redis the name of the platform's folder in the directory, see `DurableNames`. */
export type FolderNames = Pick<DurableNames, 'folder' | 'nameFolder'>;

/**
 * The directory in which the runtimes of all machines keep copies of durable names: a folder for each tenant, a file for each copy. No text
 * of a tenant is part of a path. A file counts only while an entry in Redis names it.
 */
export class SharedDirectory {
  readonly #folder: string;
  readonly #turns: IoTurns;

  private constructor(folder: string, turns: IoTurns) {
    this.#folder = folder;
    this.#turns = turns;
  }

  /**
   * Checks that only the user of this process can write the directory, and that the platform's other machines use the same directory. The
   * first process makes the platform's folder before it notes the folder's name. A directory without the noted folder is therefore not the
   * platform's. For example, the mount may be missing: copies in the empty mount point would be on this machine alone.
   * @throws SharedDirectoryError
   * @throws StoreError
   */
  static async open(directory: string, names: FolderNames, turns = new IoTurns()): Promise<SharedDirectory> {
    // Turns an error of the file system into an error for the operator.
    const attempt = async <T>(work: () => Promise<T>): Promise<T> => {
      try {
        return await turns.during(work);
      } catch (cause) {
        if (cause instanceof SharedDirectoryError) throw cause;
        throw new SharedDirectoryError(
          `Files cannot be written in the shared directory ${directory} ([storage] shared_directory): ${textOf(cause)}.`,
          { cause },
        );
      }
    };
    await attempt(() => checkPlace(directory));
    const noted = await names.folder();
    const folder = noted ?? (await nameFolder(directory, names, attempt));
    const folderPath = path.join(directory, folder);
    await attempt(async () => {
      await checkFolder(directory, folderPath);
      // A first file shows that this process can write here.
      const probe = path.join(folderPath, randomBytes(16).toString('hex'));
      try {
        const handle = await fs.open(probe, CREATE, 0o600);
        try {
          await handle.write(FORMAT);
        } finally {
          await handle.close();
        }
      } finally {
        await fs.rm(probe, { force: true });
      }
    });
    return new SharedDirectory(folderPath, turns);
  }

  /** Begins a file. The caller must `finish` or `discard` it. */
  async begin(name: OwnedName): Promise<Outcome<CopyWriter>> {
    const file = randomBytes(16).toString('hex');
    const folder = this.#folderOf(name.tenant);
    const filePath = this.#pathOf(name, file);
    const begun = await this.#inTurn(
      async () => {
        await makeFolder(folder);
        const handle = await fs.open(filePath, CREATE, 0o600);
        try {
          // Use the file server's clock, which also gave the other files their times.
          return { handle, now: (await handle.stat()).mtimeMs };
        } catch (cause) {
          await closeQuietly(handle);
          throw cause;
        }
      },
      // Closes a file that was opened after this call had given up.
      ({ handle }) => void closeQuietly(handle),
    );
    if (begun.tag === 'err') return begun;
    return ok(new CopyWriter(this.#turns, { ...begun.val, path: filePath, file }));
  }

  /** Opens the file of a copy, if it is whole. The caller must close it. */
  async read(name: OwnedName, copy: DurableCopy): Promise<Outcome<CopyReader>> {
    const opened = await this.#inTurn(
      () => fs.open(this.#pathOf(name, copy.file), constants.O_RDONLY | constants.O_NOFOLLOW),
      // Closes a file that was opened after this call had given up.
      (handle) => void closeQuietly(handle),
    );
    if (opened.tag === 'err')
      return opened.val.tag === 'not-found' ? err(damaged(name.name, 'its file is missing')) : opened;
    const reader = new CopyReader(this.#turns, opened.val);
    const fileFault = await this.#inTurn(async () => {
      const stat = await opened.val.stat();
      if (!stat.isFile() || stat.size !== HEADER_BYTES + copy.bytes) return 'its file has another length';
      const { buffer, bytesRead } = await opened.val.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
      const isSame = bytesRead === HEADER_BYTES && buffer.equals(headerOf(name, copy));
      return isSame ? null : 'its file is another one';
    });
    if (fileFault.tag === 'ok' && fileFault.val === null) return ok(reader);
    await reader.close();
    return fileFault.tag === 'err' ? fileFault : err(damaged(name.name, fileFault.val ?? ''));
  }

  /** Deletes the file of a copy. When the directory does not answer, the file stays, and `sweep` finds it. */
  async remove(name: OwnedName, { file }: DurableCopy): Promise<void> {
    await this.#inTurn(() => fs.rm(this.#pathOf(name, file), { force: true }));
  }

  /**
   * Deletes the tenant's files that no entry names and no transfer writes.
   * @param files the files that entries name
   * @param now time of the directory's server
   */
  async sweep(tenant: string, files: ReadonlySet<string>, now: number): Promise<void> {
    const folder = this.#folderOf(tenant);
    const listed = await this.#inTurn(() => fs.readdir(folder));
    if (listed.tag === 'err') return;
    const unnamed = listed.val.filter((entry) => {
      const file = /^[0-9a-f]{40}-([0-9a-f]{32})\.kv$/.exec(entry)?.[1];
      return file !== undefined && !files.has(file);
    });
    for (const entry of unnamed.slice(0, MAX_SWEPT_FILES)) {
      const swept = await this.#inTurn(async () => {
        const { mtimeMs } = await fs.lstat(path.join(folder, entry));
        if (now - mtimeMs > ABANDONED_MS) await fs.rm(path.join(folder, entry), { force: true });
      });
      // When the directory hangs, every further call would end only at its deadline.
      if (swept.tag === 'err' && swept.val.tag !== 'not-found') return;
    }
  }

  #inTurn<T>(work: () => Promise<T>, undo?: (made: T) => void): Promise<Outcome<T>> {
    return inTurn(this.#turns, work, undo);
  }

  #folderOf(tenant: string): string {
    return path.join(this.#folder, digest(tenant));
  }

  #pathOf({ tenant, model, kind, name }: OwnedName, file: string): string {
    return path.join(this.#folderOf(tenant), `${digest(JSON.stringify([model, kind, name]))}-${file}.kv`);
  }
}

interface NewFile {
  readonly handle: FileHandle;
  /** Time of the directory's server at the beginning. */
  readonly now: number;
  readonly path: string;
  /** Random text, which names the copy. */
  readonly file: string;
}

/** A file that is being written. */
export class CopyWriter {
  readonly now: number;
  readonly file: string;
  readonly #turns: IoTurns;
  readonly #begun: NewFile;
  #writtenBytes = 0;
  #isClosed = false;

  constructor(turns: IoTurns, begun: NewFile) {
    this.now = begun.now;
    this.file = begun.file;
    this.#turns = turns;
    this.#begun = begun;
  }

  async write(bytes: Uint8Array): Promise<Outcome<undefined>> {
    const at = HEADER_BYTES + this.#writtenBytes;
    this.#writtenBytes += bytes.length;
    return inTurn(this.#turns, () => this.#writeAll(bytes, at));
  }

  /** Completes the file: writes its header and closes it. */
  finish(name: OwnedName, copy: DurableCopy): Promise<Outcome<undefined>> {
    return inTurn(this.#turns, async () => {
      await this.#writeAll(headerOf(name, copy), 0);
      await this.#close();
      return undefined;
    });
  }

  /** Deletes the file, finished or not. */
  async discard(): Promise<void> {
    await releaseInTurn(this.#turns, async () => {
      try {
        // A network file system may report a failed write only here.
        await this.#close();
      } finally {
        await fs.rm(this.#begun.path, { force: true });
      }
    });
  }

  async #writeAll(bytes: Uint8Array, at: number): Promise<undefined> {
    for (let writtenCount = 0; writtenCount < bytes.length; ) {
      const { bytesWritten } = await this.#begun.handle.write(
        bytes,
        writtenCount,
        bytes.length - writtenCount,
        at + writtenCount,
      );
      writtenCount += bytesWritten;
    }
    return undefined;
  }

  async #close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#begun.handle.close();
  }
}

/** The pieces of a file, in order. */
export class CopyReader {
  readonly #turns: IoTurns;
  readonly #handle: FileHandle;
  #at = HEADER_BYTES;

  constructor(turns: IoTurns, handle: FileHandle) {
    this.#turns = turns;
    this.#handle = handle;
  }

  /** The next bytes: `length` of them, or fewer at the end. */
  async next(length: number): Promise<Outcome<Uint8Array>> {
    const from = this.#at;
    this.#at += length;
    return inTurn(this.#turns, async () => {
      const bytes = Buffer.alloc(length);
      let readCount = 0;
      while (readCount < length) {
        const { bytesRead } = await this.#handle.read(bytes, readCount, length - readCount, from + readCount);
        if (bytesRead === 0) break;
        readCount += bytesRead;
      }
      return bytes.subarray(0, readCount);
    });
  }

  async close(): Promise<void> {
    await releaseInTurn(this.#turns, () => this.#handle.close());
  }
}

/** The error for a copy whose file differs from the file that was written. */
export function damaged(name: string, why: string): HandlerError {
  const text = `the durable copy of "${name}" cannot be used: ${why}. Nothing of it was taken`;
  return handlerError('internal', text);
}

/** Runs a file operation in its turn. `undo` releases the result of an operation that ended after its deadline. */
async function inTurn<T>(turns: IoTurns, work: () => Promise<T>, undo?: (made: T) => void): Promise<Outcome<T>> {
  try {
    return ok(await turns.during(work, undo));
  } catch (cause) {
    const code = codeOf(cause);
    const text = `the shared directory failed (${code ?? textOf(cause)}); try again`;
    // The error goes to an inferlet, which must not learn the operator's paths.
    return err(handlerError(code === 'ENOENT' ? 'not-found' : 'unavailable', text));
  }
}

/** Closes a file now, or once the directory answers again: Node ends a process when it garbage-collects an open handle. */
async function releaseInTurn(turns: IoTurns, work: () => Promise<void>): Promise<void> {
  // A failure loses nothing: the entry in Redis does not name the file yet, or the file was only read.
  await turns.release(work).catch(() => undefined);
}

/** Closes a handle whose caller has got an error already. */
const closeQuietly = (handle: FileHandle): Promise<void> => handle.close().catch(() => undefined);

/** The header that a file must have. A reader compares the whole header, so that no field of a file is trusted. */
function headerOf({ tenant, model, kind, name }: OwnedName, copy: DurableCopy): Buffer {
  const { file, bytes, checksum, fingerprint, pageSize, pageBytes, pages, tokens, nextPosition, access } = copy;
  const layout = { fingerprint, pageSize, pageBytes };
  const content = { pages, tokens, nextPosition, bytes, checksum };
  const text = `${FORMAT}\n${JSON.stringify({ tenant, model, kind, name, access, file, ...layout, ...content })}\n`;
  const header = Buffer.alloc(HEADER_BYTES);
  if (Buffer.byteLength(text) > HEADER_BYTES) throw new RangeError('the header of a durable copy is too long');
  header.write(text);
  return header;
}

/** @throws SharedDirectoryError when the directory is missing, or other users may change what is in it */
async function checkPlace(directory: string): Promise<void> {
  const setting = `${directory} ([storage] shared_directory)`;
  const stats = await fs.stat(directory).catch((cause: unknown) => {
    throw new SharedDirectoryError(
      `The shared directory ${setting} cannot be found: ${textOf(cause)}. Mount it on every machine with a runtime.`,
    );
  });
  if (!stats.isDirectory()) throw new SharedDirectoryError(`${setting} is not a directory.`);
  const ownUid = process.getuid?.();
  if (ownUid !== undefined && stats.uid !== ownUid) {
    throw new SharedDirectoryError(
      `The shared directory ${setting} must belong to the user ${ownUid}, not ${stats.uid}.`,
    );
  }
  // Bits for writing by the group and by other users.
  if ((stats.mode & 0o022) !== 0) {
    throw new SharedDirectoryError(
      `Other users may write the shared directory ${setting}. Run: chmod 700 ${directory}`,
    );
  }
  for (let at = path.dirname(await fs.realpath(directory)); ; at = path.dirname(at)) {
    const { mode } = await fs.stat(at);
    // In a directory with the sticky bit, such as /tmp, users can replace only their own entries.
    if ((mode & 0o002) !== 0 && (mode & 0o1000) === 0) {
      throw new SharedDirectoryError(
        `Any user may replace the shared directory ${setting}, since any may write ${at}.`,
      );
    }
    if (at === path.dirname(at)) return;
  }
}

/** Makes and notes the platform's first folder. @returns the noted folder: that of another process when that process came first */
async function nameFolder(
  directory: string,
  names: FolderNames,
  attempt: <T>(work: () => Promise<T>) => Promise<T>,
): Promise<string> {
  const newFolder = randomBytes(16).toString('hex');
  await attempt(() => makeFolder(path.join(directory, newFolder)));
  const notedFolder = await names.nameFolder(newFolder);
  if (notedFolder !== newFolder) await attempt(() => fs.rmdir(path.join(directory, newFolder)));
  return notedFolder;
}

/** @throws SharedDirectoryError when the platform's folder is missing */
async function checkFolder(directory: string, folder: string): Promise<void> {
  const stats = await fs.lstat(folder).catch((cause: unknown) => {
    if (codeOf(cause) === 'ENOENT') return null;
    throw cause;
  });
  if (stats?.isDirectory()) return;
  throw new SharedDirectoryError(
    `The shared directory ${directory} ([storage] shared_directory) lacks this platform's folder of durable copies, so it is not the one that ` +
      `other machines have, or that this machine had. Mount that one. If the copies are lost for good, run: mkdir -m 700 ${folder}`,
  );
}

async function makeFolder(folder: string): Promise<void> {
  try {
    await fs.mkdir(folder, { mode: 0o700 });
  } catch (cause) {
    if (codeOf(cause) !== 'EEXIST') throw cause;
  }
}

/** A hash of 160 bits, in hexadecimal digits, for names of folders and files. */
function digest(text: string): string {
  // UTF-16, because UTF-8 would turn every lone surrogate into the same character.
  return createHash('sha256').update(text, 'utf16le').digest('hex').slice(0, 40);
}

function codeOf(cause: unknown): string | undefined {
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined;
}

function textOf(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).replace(/\.$/, '');
}

/**
 * Maximum file operations at once. An operation that hangs, as on a network file system whose server is away, occupies
 * one of the process's few threads for files.
 */
const MAX_RUNNING = 2;
/** Longest file operation, its wait for a turn included. */
const OPERATION_MS = 30_000;

/** Bounds the file operations under way, and the wait for each. */
export class IoTurns {
  readonly #waitMs: number;
  /** Functions that begin the waiting operations, in order. */
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(waitMs = OPERATION_MS) {
    this.#waitMs = waitMs;
  }

  /** Operations under way, those that take too long included. */
  get running(): number {
    return this.#running;
  }

  /**
   * Makes an operation when its turn comes.
   * @param undo releases the result of an operation that ended too late
   * @throws Error when the wait and the operation together take too long; errors of `work`
   */
  async during<T>(work: () => Promise<T>, undo: (made: T) => void = () => undefined): Promise<T> {
    const turn = Promise.withResolvers<void>();
    const timeout = Promise.withResolvers<never>();
    // When the work ends just as the time runs out, nothing else handles this rejection.
    timeout.promise.catch(() => undefined);
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#waiting.delete(turn.resolve);
      timeout.reject(this.#lateness());
    }, this.#waitMs);
    try {
      if (this.#running >= MAX_RUNNING) {
        this.#waiting.add(turn.resolve);
        await Promise.race([turn.promise, timeout.promise]);
      } else this.#running++;
      const working = work().finally(() => this.#leave());
      working.then(
        (made) => isLate && undo(made),
        () => undefined,
      );
      return await Promise.race([working, timeout.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Makes an operation that releases something, such as a handle. The operation runs even if its turn comes after the caller's wait.
   * @throws Error when the wait and the operation together take too long; errors of `work`
   */
  async release(work: () => Promise<void>): Promise<void> {
    const turn = Promise.withResolvers<void>();
    if (this.#running >= MAX_RUNNING) this.#waiting.add(turn.resolve);
    else {
      this.#running++;
      turn.resolve();
    }
    const released = turn.promise.then(work).finally(() => this.#leave());
    const timeout = Promise.withResolvers<never>();
    const timer = setTimeout(() => timeout.reject(this.#lateness()), this.#waitMs);
    try {
      await Promise.race([released, timeout.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  #lateness(): Error {
    return new Error(`no answer within ${this.#waitMs / 1000} s`);
  }

  #leave(): void {
    const [beginNext] = this.#waiting;
    if (beginNext) {
      this.#waiting.delete(beginNext);
      beginNext();
    } else this.#running--;
  }
}

/** Lets this process end while operations hang. Otherwise its exit would wait for their threads until the directory answers. */
export function exitWithoutWaitingFor(turns: IoTurns): void {
  process.once('exit', () => turns.running > 0 && process.kill(process.pid, 'SIGKILL'));
}
