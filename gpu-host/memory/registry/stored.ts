import { createHash, randomUUID } from 'node:crypto';
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
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { unexpected } from '#gpu-host/unexpected.ts';
import { RIGHTS_CASES } from '#wit/generated/host.ts';
import { isAlive } from '../../process-alive.ts';
import { CallFault, fault } from '../fault.ts';
import type { StoredPage } from '../page-records.ts';
import type { TransferBuffer } from '../transfers.ts';
import { directoryNameOf, type Entry, type EntryKind, entryOf, fileNameOf, type Maker, type Version } from './entry.ts';

/** Reads the headers of a tenant's files, not their pages, and makes entries of them. A file that cannot be used becomes a refusal. */
export function readShelf<S>(files: SnapshotFiles, tenant: string, maker: Maker): Shelf<S> {
  const shelf: Shelf<S> = { entries: new Map(), refusals: new Map() };
  for (const fileName of withDiskFaults("the tenant's directory", () => files.list(tenant))) {
    const found = readFile<S>(files, tenant, fileName, maker);
    if ('fault' in found) shelf.refusals.set(fileName, found);
    else shelf.entries.set(fileName, found);
  }
  return shelf;
}

function readFile<S>(files: SnapshotFiles, tenant: string, fileName: string, maker: Maker): Entry<S> | Refusal {
  let header: FileHeader | undefined;
  let fileBytes = 0;
  try {
    const checked = files.read(tenant, fileName, (read, size) => {
      fileBytes = size;
      const decoded = decodeHeader(read, size);
      checkPlace(decoded, tenant, fileName);
      // Set before the next check, so that the refusal of another model's file has the header.
      header = decoded;
      checkMaker(decoded, maker);
      return decoded;
    });
    return storedEntry(checked, fileBytes);
  } catch (cause) {
    const problem = diskFault('this snapshot', cause);
    if (problem instanceof CallFault) return { fault: problem, fileName, fileBytes, header };
    throw problem;
  }
}

function storedEntry<S>(header: FileHeader, fileBytes: number): Entry<S> {
  const { tenant, name, file, pages, tokens, nextPosition } = header;
  const version: Version<S> = {
    pages,
    tokens,
    nextPosition,
    persistent: true,
    file,
    order: 0,
    snapshot: undefined,
    fileBytes,
  };
  return entryOf({ tenant, kind: kindOf(header), name }, version, true);
}

/**
 * Fills `restoration` with the pages of an entry's file, one buffer after the other: reads the disk into the buffer while device steps run, and
 * copies the buffer to memory between steps. Returns the file's header.
 * @throws CallFault `internal` when the file is damaged or cannot be read, `invalid-argument` when another model made it, `cancelled` when
 * the requester ends meanwhile
 */
export async function fillFromFile<S extends Snapshot>(
  files: SnapshotFiles,
  entry: Entry<S>,
  maker: Maker,
  restoration: Restoration<S>,
  requester: Requester<S>,
  { memory, bufferBytes }: Transfer<S>,
): Promise<FileHeader> {
  const { tenant, kind, name, current } = entry;
  const fileName = fileNameOf(kind, name);
  try {
    return await files.readPieces(tenant, fileName, async (read, size) => {
      const file = await openStored(read, size);
      const { header } = file;
      checkPlace(header, tenant, fileName);
      checkMaker(header, maker);
      if (header.pages !== current.pages) throw new FileDamage(`it has ${header.pages} pages, not ${current.pages}`);
      const { pages, pageBytes } = header;
      const source = {
        pages,
        pageBytes,
        pageAt: (index: number) => file.pageAt(index),
        readPages: (first: number, into: Uint8Array) => file.readPages(first, into),
      };
      await fillPages(source, restoration, requester, { memory, bufferBytes });
      return header;
    });
  } catch (cause) {
    throw diskFault(`"${name}"`, cause);
  }
}

/** Memory, and the size of the buffers through which pages get there. */
export interface Transfer<S extends Snapshot> {
  readonly memory: Pick<SnapshotMemory<S>, 'takeBuffer' | 'settled'>;
  /** Maximum bytes of a buffer; a buffer for a single page may be longer. */
  readonly bufferBytes: number;
}

/** Pages outside of the model's memory: in a file, or in a copy from another host. */
export interface PageSource {
  readonly pages: number;
  readonly pageBytes: number;
  /** The page at `index` without its keys and values. Called once for each page, in order, between device steps. */
  pageAt(index: number): StoredPage;
  /** Copies the keys and values of pages from `first` on, as many as `into` has room for. */
  readPages(first: number, into: Uint8Array): void | Promise<void>;
}

/**
 * Fills `restoration` with the pages of `source`, one buffer after the other: reads `source` into the buffer while device steps run, and copies the
 * buffer to memory between steps.
 * @throws CallFault `cancelled` when the requester ends meanwhile; what `source` throws
 */
export async function fillPages<S extends Snapshot>(
  source: PageSource,
  restoration: Restoration<S>,
  requester: Requester<S>,
  { memory, bufferBytes }: Transfer<S>,
): Promise<void> {
  const { pages, pageBytes } = source;
  const pagesAtOnce = Math.min(pages, pagesPerBuffer(bufferBytes, pageBytes));
  const buffer = memory.takeBuffer(pagesAtOnce * pageBytes);
  try {
    for (let first = 0; first < pages; first += pagesAtOnce) {
      const count = Math.min(pagesAtOnce, pages - first);
      await source.readPages(first, buffer.bytes.subarray(0, count * pageBytes));
      let filled = 0;
      await requester.between(() => {
        checkOpen(requester);
        const bytes = buffer.bytes.subarray(filled * pageBytes, (filled + 1) * pageBytes);
        restoration.fill(first + filled, source.pageAt(first + filled), bytes);
        return ++filled < count;
      });
      await memory.settled();
    }
  } finally {
    buffer.release();
  }
}

/** Checks that the requester has not ended. @throws CallFault `cancelled` */
export function checkOpen<S extends Snapshot>({ hasEnded }: Requester<S>): void {
  if (hasEnded) throw endedFault();
}

export function endedFault(): CallFault {
  return fault('cancelled', 'the inferlet ended while a snapshot was brought back from disk');
}

function kindOf(header: FileHeader): EntryKind {
  return header.file ? 'file' : 'export';
}

/** @throws FileDamage when the header names another entry, so that its owner and rights do not apply */
function checkPlace(header: FileHeader, tenant: string, fileName: string): void {
  if (header.tenant !== tenant || fileNameOf(kindOf(header), header.name) !== fileName) {
    throw new FileDamage('it has the place of another name');
  }
}

/** @throws CallFault `invalid-argument`, with the names of both models, when another model made the file */
function checkMaker(header: FileHeader, maker: Maker): void {
  const { fingerprint, pageSize, pageBytes } = maker;
  const isSameModel = header.fingerprint.hash === fingerprint.hash;
  if (isSameModel && header.pageSize === pageSize && header.pageBytes === pageBytes) return;
  const describe = (made: Maker): string =>
    `${made.fingerprint.name}, fingerprint ${made.fingerprint.hash.slice(0, 12)}, ${made.pageBytes} bytes a page of ${made.pageSize}`;
  throw fault(
    'invalid-argument',
    `"${header.name}" was made by another model: by ${describe(header)}; this is ${describe(maker)}. Remove it, or serve the model that made it`,
  );
}

/** Runs a file operation. @throws CallFault for damage or a disk error */
function withDiskFaults<T>(what: string, body: () => T): T {
  try {
    return body();
  } catch (cause) {
    throw diskFault(what, cause);
  }
}

/** Turns a file error into the error of a call. A CallFault, or a bug, stays as it is. */
function diskFault(what: string, cause: unknown): unknown {
  if (cause instanceof FileDamage) return fault('internal', `${what} is damaged on disk: ${cause.message}`);
  if (cause instanceof Error && 'syscall' in cause) {
    return fault('internal', `${what} cannot be read from disk: ${unexpected(cause)}`);
  }
  return cause;
}

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

/** Bytes of the saves under way, in total and by tenant. A save counts from the call that starts it, even while it waits. */
export class SavingBytes {
  #total = 0;
  readonly #tenants = new Map<string, number>();

  get total(): number {
    return this.#total;
  }

  bytesOf(tenant: string): number {
    return this.#tenants.get(tenant) ?? 0;
  }

  /** @param bytes negative when a save has ended */
  add(tenant: string, bytes: number): void {
    this.#total += bytes;
    const remainingBytes = this.bytesOf(tenant) + bytes;
    if (remainingBytes > 0) this.#tenants.set(tenant, remainingBytes);
    else this.#tenants.delete(tenant);
  }
}

/**
 * Copies a snapshot into its file, one buffer at a time: copies pages into the buffer between device steps, and writes the buffer to the disk while
 * steps run. Ends early, with the file incomplete, when `snapshotIfWanted` returns undefined.
 *
 * @param snapshotIfWanted returns the snapshot; undefined once the registry wants it no more and has released its pages
 */
export async function writeSnapshot<S extends Snapshot>(
  memory: SnapshotMemory<S>,
  snapshotIfWanted: () => S | undefined,
  header: FileHeader,
  write: PieceWriter,
  turns: DeviceTurns,
  bufferBytes: number,
): Promise<void> {
  const { pages, pageBytes } = header;
  const head = new FileHead(header);
  const pagesAtOnce = Math.min(pages, pagesPerBuffer(bufferBytes, pageBytes));
  const buffer = memory.takeBuffer(pagesAtOnce * pageBytes);
  const bufferOf = (index: number) => buffer.bytes.subarray(index * pageBytes, (index + 1) * pageBytes);
  try {
    for (let firstPage = 0; firstPage < pages; firstPage += pagesAtOnce) {
      const count = Math.min(pagesAtOnce, pages - firstPage);
      let copiedCount = 0;
      await turns.between(() => {
        const snapshot = snapshotIfWanted();
        const frozen = snapshot?.pages[firstPage + copiedCount];
        if (!snapshot || !frozen) return false;
        const { page, masked } = frozen;
        head.setPage(firstPage + copiedCount, { filled: page.filled, masked, positions: page.positions });
        memory.readPage(snapshot, firstPage + copiedCount, bufferOf(copiedCount));
        return ++copiedCount < count;
      });
      if (copiedCount < count) return;
      await memory.settled();
      const data = buffer.bytes.subarray(0, count * pageBytes);
      await head.setData(firstPage, data);
      await write(head.dataOffset + firstPage * pageBytes, data);
    }
    await write(0, await head.seal());
  } finally {
    buffer.release();
  }
}

/** Pages that fit into a buffer; at least one. */
export function pagesPerBuffer(bufferBytes: number, pageBytes: number): number {
  return Math.max(1, Math.floor(bufferBytes / pageBytes));
}

/** Pages frozen at one moment. They never change: an inferlet that wants to write to a page with another holder gets a copy of the page. */
export interface Snapshot {
  readonly pages: readonly SnapshotPage[];
  /** Filled slots. */
  readonly tokens: number;
  /** One past the largest position. */
  readonly nextPosition: number;
}

export interface SnapshotPage {
  readonly page: { readonly filled: number; readonly positions: Uint32Array };
  /** A set bit `s` hides slot `s`. */
  readonly masked: number;
}

/** Memory as the registry sees it. The registry calls `release` at any time, and all other methods only between device steps. */
export interface SnapshotMemory<S extends Snapshot> {
  /** Adds one reference of the registry to each page. */
  retain(snapshot: S): void;
  /** Drops the references that `retain`, or a restore, made for the registry. */
  release(snapshot: S): void;
  /** Counts a held snapshot as used now. */
  used(snapshot: S): void;
  /** Takes a buffer for the bytes of `readPage` and `Restoration.fill`. */
  takeBuffer(bytes: number): TransferBuffer;
  /** Copies the keys and values of the page at `index`, from the device or from swap. They are in `into` once `settled` resolves. */
  readPage(snapshot: S, index: number, into: Uint8Array): void;
  /** Resolves when all earlier copies from and to buffers have ended; undefined when no copy can be under way. */
  settled(): Promise<void> | undefined;
}

/** Gives one inferlet turns between device steps, when pages may change. The inferlet pays for the device time of its turns. */
export interface DeviceTurns {
  /**
   * Calls `next` between device steps until it returns false. Each call of `next` is short, and device steps may run between two calls.
   * Rejects with what `next` throws.
   */
  between(next: () => boolean): Promise<void>;
}

/** The inferlet that brings a snapshot back from disk. */
export interface Requester<S extends Snapshot> extends DeviceTurns {
  readonly tenant: string;
  /** True once the inferlet has ended: its pages are free, or will be before the next device step. */
  readonly hasEnded: boolean;
  /** Calls `tell` when the inferlet ends. Returns a function that unregisters `tell`. */
  whenEnded(tell: () => void): () => void;
  /** Makes room for `pages` pages of a snapshot that belongs to `owner`, between device steps. @throws CallFault */
  restore(owner: string, pages: number): Restoration<S>;
}

/** Pages on their way from disk. They count as pages of the requester, and are freed when it ends. Only `end` may be called during a device step. */
export interface Restoration<S extends Snapshot> {
  /** Fills the page at `index`. @param bytes its keys and values in a transfer buffer, unchanged until `SnapshotMemory.settled` resolves */
  fill(index: number, page: StoredPage, bytes: Uint8Array): void;
  /** Makes the snapshot of the filled pages, and adds one reference of the registry to each page, as `SnapshotMemory.retain` does. */
  finish(tokens: number, nextPosition: number): S;
  /** Ends the requester's hold on the pages. Pages that neither the registry nor an address holds are freed. */
  end(): void;
}

/** Runs `work` once between two device steps. */
export async function onceBetween<T>(turns: DeviceTurns, work: () => T): Promise<T> {
  const results: T[] = [];
  await turns.between(() => {
    results.push(work());
    return false;
  });
  return results[0] as T;
}

/*
 * The layout of a snapshot file. Integers are little-endian, checksums are SHA-256:
 *
 *   magic 8 bytes | version u32 | length of the header u32 | header, JSON | checksum of all before
 *   page table, one entry per page: filled u32 | masked u32 | positions, pageSize × u32 | checksum of the page's data
 *   one checksum over the header's checksum and the page table
 *   the data of one page after the other, pageBytes each
 *
 * Every byte is under a checksum, and the size of the file follows from its header.
 */
const MAGIC = Buffer.from('PIEKVSN\n', 'latin1');
const VERSION = 1;
/** Bytes of the magic, the version and the length of the header. */
const PREAMBLE_BYTES = 16;
const VERSION_OFFSET = 8;
const HEADER_LENGTH_OFFSET = 12;
const CHECKSUM_BYTES = 32;
/** Bytes of `filled` and `masked` in an entry of the page table. */
const FLAG_BYTES = 8;
const FILLED_OFFSET = 0;
const MASKED_OFFSET = 4;
const U32_BYTES = 4;
const MAX_HEADER_BYTES = 64 * 1024;

const count = z.int().min(0);
const headerSchema = z.object({
  tenant: z.string(),
  name: z.string(),
  /** Null for an export. */
  file: z.object({ owner: z.string(), rights: z.enum(RIGHTS_CASES) }).nullable(),
  fingerprint: z.object({ name: z.string(), hash: z.string() }),
  pageSize: count,
  pageBytes: count,
  pages: count,
  tokens: count,
  nextPosition: count,
});

/** Header of a snapshot file. */
export type FileHeader = Readonly<z.infer<typeof headerSchema>>;

/** Reads `length` bytes of a file. @throws FileDamage when the file is shorter */
export type ByteReader = (offset: number, length: number) => Buffer;

/** Reads asynchronously until `into`, a buffer of the caller, is full. @throws FileDamage as `ByteReader` */
export type PieceReader = (offset: number, into: Uint8Array) => Promise<void>;

/** Thrown when bytes are not those of a completely written snapshot; `it` in the message is the file. */
export class FileDamage extends Error {
  override readonly name = 'FileDamage';
}

/**
 * The head of a file to be written: header and page table. The data of page `i` goes to `dataOffset + i × pageBytes`, in any order; the head
 * goes to the start of the file.
 */
export class FileHead {
  readonly dataOffset: number;
  readonly #header: FileHeader;
  readonly #bytes: Buffer;
  readonly #tableOffset: number;

  constructor(header: FileHeader) {
    const json = Buffer.from(JSON.stringify(header));
    if (json.length > MAX_HEADER_BYTES) throw new RangeError(`a header of ${json.length} bytes`);
    this.#header = header;
    this.#tableOffset = PREAMBLE_BYTES + json.length + CHECKSUM_BYTES;
    this.dataOffset = dataOffsetOf(this.#tableOffset, header);
    this.#bytes = Buffer.alloc(this.dataOffset);
    MAGIC.copy(this.#bytes);
    this.#bytes.writeUInt32LE(VERSION, VERSION_OFFSET);
    this.#bytes.writeUInt32LE(json.length, HEADER_LENGTH_OFFSET);
    json.copy(this.#bytes, PREAMBLE_BYTES);
    sha256(this.#bytes.subarray(0, PREAMBLE_BYTES + json.length)).copy(this.#bytes, PREAMBLE_BYTES + json.length);
  }

  /** Describes the page at `index`. */
  setPage(index: number, { filled, masked, positions }: StoredPage): void {
    const entry = this.#entry(index);
    entry.writeUInt32LE(filled >>> 0, FILLED_OFFSET);
    entry.writeUInt32LE(masked >>> 0, MASKED_OFFSET);
    for (let slot = 0; slot < this.#header.pageSize; slot++)
      entry.writeUInt32LE(positions[slot] ?? 0, FLAG_BYTES + slot * U32_BYTES);
  }

  /** Computes the checksums of the data of whole pages, from `first` on. */
  async setData(first: number, data: Uint8Array): Promise<void> {
    for (const [i, checksum] of (await digests(data, this.#header.pageBytes)).entries()) {
      const entry = this.#entry(first + i);
      checksum.copy(entry, entry.length - CHECKSUM_BYTES);
    }
  }

  /** The bytes of the head, once every page is described. */
  async seal(): Promise<Buffer> {
    const end = this.dataOffset - CHECKSUM_BYTES;
    (await digest(this.#bytes.subarray(this.#tableOffset - CHECKSUM_BYTES, end))).copy(this.#bytes, end);
    return this.#bytes;
  }

  #entry(index: number): Buffer {
    return tableEntry(this.#bytes.subarray(this.#tableOffset), index, this.#header);
  }
}

/** Bytes of a file of `pages` pages, without its JSON header. */
export function fileSize(pages: number, { pageSize, pageBytes }: { pageSize: number; pageBytes: number }): number {
  return PREAMBLE_BYTES + 2 * CHECKSUM_BYTES + pages * (tableEntryBytes(pageSize) + pageBytes);
}

/** The header of a file of `size` bytes, checked against its checksum and against the size. @throws FileDamage */
export function decodeHeader(read: ByteReader, size: number): FileHeader {
  return readLayout(read, size).header;
}

/** A file whose head is verified. */
export interface StoredFile {
  readonly header: FileHeader;
  /** The page at `index` without its data. */
  pageAt(index: number): StoredPage;
  /** Reads the data of whole pages from `first` on, as many as `into` has room for, and verifies them. @throws FileDamage */
  readPages(first: number, into: Uint8Array): Promise<void>;
}

/** Reads and verifies the head of a file of `size` bytes. @throws FileDamage */
export async function openStored(read: PieceReader, size: number): Promise<StoredFile> {
  const start = Buffer.alloc(Math.min(size, PREAMBLE_BYTES + MAX_HEADER_BYTES + CHECKSUM_BYTES));
  await read(0, start);
  const readStart: ByteReader = (offset, length) => {
    if (offset + length > start.length) throw new FileDamage(`it ends before byte ${offset + length}`);
    return start.subarray(offset, offset + length);
  };
  const { header, tableOffset, dataOffset } = readLayout(readStart, size);
  const bytes = Buffer.alloc(dataOffset - tableOffset + CHECKSUM_BYTES);
  await read(tableOffset - CHECKSUM_BYTES, bytes);
  const end = bytes.length - CHECKSUM_BYTES;
  if (!(await digest(bytes.subarray(0, end))).equals(bytes.subarray(end))) {
    throw new FileDamage('the checksum of its page table does not match');
  }
  const table = bytes.subarray(CHECKSUM_BYTES, end);
  const { pageSize, pageBytes } = header;
  return {
    header,
    pageAt(index) {
      const entry = tableEntry(table, index, header);
      const positions = new Uint32Array(pageSize);
      for (let slot = 0; slot < pageSize; slot++) {
        positions[slot] = entry.readUInt32LE(FLAG_BYTES + slot * U32_BYTES);
      }
      return { filled: entry.readUInt32LE(FILLED_OFFSET), masked: entry.readUInt32LE(MASKED_OFFSET), positions };
    },
    async readPages(first, into) {
      const pages = into.length / pageBytes;
      if (!Number.isInteger(pages)) throw new RangeError(`pages of ${pageBytes} bytes into ${into.length} bytes`);
      const checksums: Buffer[] = [];
      for (let i = 0; i < pages; i++) {
        checksums.push(tableEntry(table, first + i, header).subarray(-CHECKSUM_BYTES));
      }
      await read(dataOffset + first * pageBytes, into);
      for (const [i, checksum] of (await digests(into, pageBytes)).entries()) {
        if (!checksum.equals(checksums[i] as Buffer))
          throw new FileDamage(`the checksum of page ${first + i} does not match`);
      }
    },
  };
}

interface Layout {
  readonly header: FileHeader;
  readonly tableOffset: number;
  readonly dataOffset: number;
}

function readLayout(read: ByteReader, size: number): Layout {
  if (size < PREAMBLE_BYTES) throw new FileDamage(`it has ${size} bytes, fewer than any snapshot`);
  const preamble = read(0, PREAMBLE_BYTES);
  if (!preamble.subarray(0, MAGIC.length).equals(MAGIC)) throw new FileDamage('it does not begin like a snapshot');
  const version = preamble.readUInt32LE(VERSION_OFFSET);
  if (version !== VERSION) throw new FileDamage(`it has format ${version}, and this host reads format ${VERSION}`);
  const length = preamble.readUInt32LE(HEADER_LENGTH_OFFSET);
  if (length > MAX_HEADER_BYTES) throw new FileDamage(`its header claims ${length} bytes`);
  const tableOffset = PREAMBLE_BYTES + length + CHECKSUM_BYTES;
  const json = read(PREAMBLE_BYTES, length);
  const headerChecksum = read(PREAMBLE_BYTES + length, CHECKSUM_BYTES);
  if (!sha256(preamble, json).equals(headerChecksum)) {
    throw new FileDamage('the checksum of its header does not match');
  }
  const header = parseHeader(json.toString());
  const dataOffset = dataOffsetOf(tableOffset, header);
  const expectedSize = length + fileSize(header.pages, header);
  if (expectedSize !== size) throw new FileDamage(`it has ${size} bytes, but its header says ${expectedSize}`);
  return { header, tableOffset, dataOffset };
}

function parseHeader(json: string): FileHeader {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw new FileDamage('its header is not JSON');
  }
  const parsed = headerSchema.safeParse(value);
  if (!parsed.success) throw new FileDamage(`its header is malformed: ${parsed.error.issues[0]?.message ?? 'invalid'}`);
  return parsed.data;
}

function tableEntryBytes(pageSize: number): number {
  return FLAG_BYTES + pageSize * U32_BYTES + CHECKSUM_BYTES;
}

function dataOffsetOf(tableOffset: number, { pages, pageSize }: FileHeader): number {
  return tableOffset + pages * tableEntryBytes(pageSize) + CHECKSUM_BYTES;
}

function tableEntry(table: Buffer, index: number, { pages, pageSize }: FileHeader): Buffer {
  if (!(index >= 0 && index < pages)) throw new RangeError(`page ${index} of ${pages}`);
  const bytes = tableEntryBytes(pageSize);
  return table.subarray(index * bytes, (index + 1) * bytes);
}

function sha256(...parts: readonly Uint8Array[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
}

/** Bytes whose checksum is computed before other tasks of the event loop get a turn. */
const TURN_BYTES = 1024 * 1024;

/** SHA-256 of each `partBytes` bytes. Yields to the event loop after each `TURN_BYTES`. */
async function digests(data: Uint8Array, partBytes: number): Promise<Buffer[]> {
  const checksums: Buffer[] = [];
  let remainingBytes = TURN_BYTES;
  for (let start = 0; start < data.length; start += partBytes) {
    const hash = createHash('sha256');
    const end = start + partBytes;
    for (let offset = start; offset < end; ) {
      const pieceEnd = Math.min(end, offset + remainingBytes);
      hash.update(data.subarray(offset, pieceEnd));
      remainingBytes -= pieceEnd - offset;
      offset = pieceEnd;
      if (remainingBytes > 0) continue;
      remainingBytes = TURN_BYTES;
      await setImmediate();
    }
    checksums.push(hash.digest());
  }
  return checksums;
}

/** SHA-256 of all bytes. Yields as `digests` does. */
async function digest(bytes: Uint8Array): Promise<Buffer> {
  const [checksum] = await digests(bytes, bytes.length);
  return checksum as Buffer;
}

/** A file on disk that this host cannot use, and that takes up the file name of an entry. */
export interface Refusal {
  readonly fault: CallFault;
  readonly fileName: string;
  readonly fileBytes: number;
  /** Undefined when the header cannot be read, or is about another name. */
  readonly header: FileHeader | undefined;
}

/** Entries and refusals of one tenant, by file name (`fileNameOf`). */
export interface Shelf<S> {
  readonly entries: Map<string, Entry<S>>;
  readonly refusals: Map<string, Refusal>;
}
