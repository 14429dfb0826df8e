import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { RIGHTS_CASES } from '#wit/generated/host.ts';
import type { StoredPage } from './snapshot.ts';

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
