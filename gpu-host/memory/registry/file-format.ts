import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import type { Fingerprint } from '#gpu-host/models/fingerprint.ts';
import { FILE_RIGHTS } from '../../protocol/calls.ts';
import type { Ownership } from './rights.ts';
import type { StoredPage } from './snapshot.ts';

/*
 * A snapshot on disk; integers are little-endian, checksums SHA-256:
 *
 *   magic 8 bytes | version u32 | length of the header u32 | header, JSON | checksum of all before
 *   one entry a page: filled u32 | masked u32 | positions, pageSize × u32 | checksum of its data | then the checksum of the table, begun with the header's
 *   one page after the other, pageBytes each
 *
 * Every byte is under a checksum, and the size of the file follows from its header.
 */
const MAGIC = Buffer.from('PIEKVSN\n', 'latin1');
const VERSION = 1;
const PREAMBLE_BYTES = 16;
const CHECKSUM_BYTES = 32;
const MAX_HEADER_BYTES = 64 * 1024;

const count = z.int().min(0);
const headerSchema = z.object({
  tenant: z.string(),
  name: z.string(),
  /** Null for an export. */
  file: z.object({ owner: z.string(), rights: z.enum(FILE_RIGHTS) }).nullable(),
  fingerprint: z.object({ name: z.string(), hash: z.string() }),
  pageSize: count,
  pageBytes: count,
  pages: count,
  tokens: count,
  nextPosition: count,
});

/** Header of a snapshot file. */
export interface FileHeader {
  readonly tenant: string;
  readonly name: string;
  /** Null for an export. */
  readonly file: Ownership | null;
  readonly fingerprint: Fingerprint;
  readonly pageSize: number;
  readonly pageBytes: number;
  readonly pages: number;
  readonly tokens: number;
  readonly nextPosition: number;
}

/** Reads `length` bytes of a file. @throws FileDamage when the file is shorter */
export type ByteReader = (offset: number, length: number) => Buffer;

/** The bytes are not those of a snapshot that was written whole. */
export class FileDamage extends Error {
  override readonly name = 'FileDamage';
}

/** Bytes of pages whose checksums are computed before other tasks of the event loop get a turn. */
const CHECKSUM_BATCH_BYTES = 4 * 1024 * 1024;

/** The parts of a file, in order: the head (header and page table), then each page's data. Yields to the event loop between checksums. */
export async function encodeFile(
  header: FileHeader,
  pages: readonly StoredPage[],
  data: readonly Uint8Array[],
): Promise<Uint8Array[]> {
  const checksums: Buffer[] = [];
  let batch = 0;
  for (const page of data) {
    checksums.push(sha256(page));
    batch += page.length;
    if (batch < CHECKSUM_BATCH_BYTES) continue;
    batch = 0;
    await setImmediate();
  }
  return [encodeHead(header, pages, checksums), ...data];
}

/** Bytes of a file of `pages` pages, without its JSON header. */
export function fileSize(pages: number, { pageSize, pageBytes }: { pageSize: number; pageBytes: number }): number {
  return PREAMBLE_BYTES + 2 * CHECKSUM_BYTES + pages * (tableEntryBytes(pageSize) + pageBytes);
}

function encodeHead(header: FileHeader, pages: readonly StoredPage[], checksums: readonly Buffer[]): Buffer {
  const json = Buffer.from(JSON.stringify(header));
  if (json.length > MAX_HEADER_BYTES) throw new RangeError(`a header of ${json.length} bytes`);
  const preamble = Buffer.alloc(PREAMBLE_BYTES);
  MAGIC.copy(preamble);
  preamble.writeUInt32LE(VERSION, 8);
  preamble.writeUInt32LE(json.length, 12);
  const headerChecksum = sha256(preamble, json);

  const entryBytes = tableEntryBytes(header.pageSize);
  const table = Buffer.alloc(pages.length * entryBytes);
  for (const [i, page] of pages.entries()) {
    const entry = table.subarray(i * entryBytes, (i + 1) * entryBytes);
    entry.writeUInt32LE(page.filled >>> 0, 0);
    entry.writeUInt32LE(page.masked >>> 0, 4);
    for (let slot = 0; slot < header.pageSize; slot++) entry.writeUInt32LE(page.positions[slot] ?? 0, 8 + slot * 4);
    checksums[i]?.copy(entry, entryBytes - CHECKSUM_BYTES);
  }
  return Buffer.concat([preamble, json, headerChecksum, table, sha256(headerChecksum, table)]);
}

/** The header of a file of `size` bytes, checked against its checksum and against the size. @throws FileDamage */
export function decodeHeader(read: ByteReader, size: number): FileHeader {
  return locate(read, size).header;
}

/** A whole file with a verified page table; `readPage` verifies each page's data. */
export interface DecodedFile {
  readonly header: FileHeader;
  readonly pages: readonly StoredPage[];
  /** @throws FileDamage when the data is not what was written */
  readPage(index: number, into: Uint8Array): void;
}

/** @throws FileDamage */
export function decodeFile(read: ByteReader, size: number): DecodedFile {
  const { header, headerChecksum, tableOffset, dataOffset } = locate(read, size);
  const table = read(tableOffset, dataOffset - tableOffset - CHECKSUM_BYTES);
  if (!sha256(headerChecksum, table).equals(read(dataOffset - CHECKSUM_BYTES, CHECKSUM_BYTES))) {
    throw new FileDamage('the checksum of its page table does not match');
  }
  const entryBytes = tableEntryBytes(header.pageSize);
  const pages: StoredPage[] = [];
  const checksums: Buffer[] = [];
  for (let i = 0; i < header.pages; i++) {
    const entry = table.subarray(i * entryBytes, (i + 1) * entryBytes);
    const positions = new Uint32Array(header.pageSize);
    for (let slot = 0; slot < header.pageSize; slot++) positions[slot] = entry.readUInt32LE(8 + slot * 4);
    pages.push({ filled: entry.readUInt32LE(0), masked: entry.readUInt32LE(4), positions });
    checksums.push(entry.subarray(entryBytes - CHECKSUM_BYTES));
  }
  return {
    header,
    pages,
    readPage(index, into) {
      const checksum = checksums[index];
      if (!checksum || into.length !== header.pageBytes) {
        throw new RangeError(`page ${index} of ${header.pages} into ${into.length} of ${header.pageBytes} bytes`);
      }
      const bytes = read(dataOffset + index * header.pageBytes, header.pageBytes);
      if (!sha256(bytes).equals(checksum)) throw new FileDamage(`the checksum of page ${index} does not match`);
      into.set(bytes);
    },
  };
}

interface Layout {
  readonly header: FileHeader;
  readonly headerChecksum: Buffer;
  readonly tableOffset: number;
  readonly dataOffset: number;
}

function locate(read: ByteReader, size: number): Layout {
  if (size < PREAMBLE_BYTES) throw new FileDamage(`it has ${size} bytes, fewer than any snapshot`);
  const preamble = read(0, PREAMBLE_BYTES);
  if (!preamble.subarray(0, MAGIC.length).equals(MAGIC)) throw new FileDamage('it does not begin as a snapshot does');
  const version = preamble.readUInt32LE(8);
  if (version !== VERSION) throw new FileDamage(`it is of format ${version}, this host reads ${VERSION}`);
  const length = preamble.readUInt32LE(12);
  if (length > MAX_HEADER_BYTES) throw new FileDamage(`its header claims ${length} bytes`);
  const tableOffset = PREAMBLE_BYTES + length + CHECKSUM_BYTES;
  const json = read(PREAMBLE_BYTES, length);
  const headerChecksum = read(PREAMBLE_BYTES + length, CHECKSUM_BYTES);
  if (!sha256(preamble, json).equals(headerChecksum)) {
    throw new FileDamage('the checksum of its header does not match');
  }
  const header = parseHeader(json.toString());
  const dataOffset = tableOffset + header.pages * tableEntryBytes(header.pageSize) + CHECKSUM_BYTES;
  const whole = length + fileSize(header.pages, header);
  if (whole !== size) throw new FileDamage(`it has ${size} bytes, its header says ${whole}`);
  return { header, headerChecksum, tableOffset, dataOffset };
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
  return 8 + pageSize * 4 + CHECKSUM_BYTES;
}

function sha256(...parts: readonly Uint8Array[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
}
