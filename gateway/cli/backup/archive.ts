import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { z } from 'zod';

/**
 * A backup is a sequence of frames. Each frame has a prefix (4 bytes with the length of its header and 4 bytes with the length of its body, both
 * little endian), a header in JSON, and a body. The first frame describes the backup. The last one has the SHA-256 of all bytes before it, so that
 * a reader notices a file that was cut or changed.
 */

const PREFIX_BYTES = 8;
const MAX_HEADER_BYTES = 16_384;
/** Pie writes bodies of about 1 MiB. Only an item that cannot be divided, such as a large value in a hash, makes a larger one. */
const MAX_BODY_BYTES = 64 << 20;

/** Minimum bytes to ask for in one read. Most frames are far smaller, and each read call costs more than the additional bytes. */
const READ_BYTES = 256 << 10;

export const ARCHIVE_VERSION = 1;

/** Types of entries. An entry is a record of Redis: a key with its value. */
const TYPES = ['string', 'hash', 'set', 'zset', 'list', 'stream'] as const;
export type EntryType = (typeof TYPES)[number];

const count = z.int().min(0);

const description = z.object({
  kind: z.literal('backup'),
  version: count,
  /** Version of Pie that wrote the backup. */
  release: z.string(),
  createdAt: z.iso.datetime(),
  /** Name of the machine whose files the backup contains. */
  machine: z.string(),
});

const headers = z.discriminatedUnion('kind', [
  description,
  /**
   * Some or all items of an entry; an entry may take several frames. The body lists the entry's key and then the items (`listBody`).
   */
  z.strictObject({
    kind: z.literal('entry'),
    type: z.enum(TYPES),
    /** True in the first frame of an entry. */
    first: z.boolean(),
    /** Milliseconds since the Unix epoch. */
    expiresAt: count.optional(),
  }),
  /** A file of the home, with its size. The frame has no body: the frames of kind `part` that follow have the file's bytes. */
  z.strictObject({ kind: z.literal('file'), path: z.string(), bytes: count }),
  /** The body is the next bytes of the file that the last frame of kind `file` names. */
  z.strictObject({ kind: z.literal('part') }),
  z.strictObject({ kind: z.literal('end'), sha256: z.string() }),
]);

/** The members that the description has in every version of the format; a later version may change all others. */
const versionedSchema = z.object({ kind: z.string(), version: count });

export type Description = z.output<typeof description>;
export type Header = z.output<typeof headers>;

export interface Frame {
  readonly header: Header;
  readonly body: Buffer;
}

/** A file that is not a complete backup, or has a version that this release does not read. */
export class ArchiveFault extends Error {
  override readonly name = 'ArchiveFault';
}

/** Appends frames to a file. */
export class ArchiveWriter {
  readonly #file: FileHandle;
  readonly #hash = createHash('sha256');
  #bytes = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Bytes written. */
  get bytes(): number {
    return this.#bytes;
  }

  async add(header: Header, body: Uint8Array = new Uint8Array()): Promise<void> {
    const text = Buffer.from(JSON.stringify(header));
    const prefix = Buffer.alloc(PREFIX_BYTES);
    prefix.writeUInt32LE(text.length, 0);
    prefix.writeUInt32LE(body.length, 4);
    const frame = Buffer.concat([prefix, text, body]);
    if (header.kind !== 'end') this.#hash.update(frame);
    for (let at = 0; at < frame.length; ) at += (await this.#file.write(frame, at)).bytesWritten;
    this.#bytes += frame.length;
  }

  /** Writes the last frame, and waits until the file is on disk. */
  async end(): Promise<void> {
    await this.add({ kind: 'end', sha256: this.#hash.digest('hex') });
    await this.#file.sync();
  }
}

/**
 * Reads all frames of a file, including the last one. Holds one frame and the bytes of one read in memory. The checksum is checked after
 * the last frame: until then, the frames may come from a damaged file.
 * @throws ArchiveFault for a file that is not a complete backup of a version that this release reads
 */
export async function* readArchive(file: FileHandle): AsyncGenerator<Frame> {
  const hash = createHash('sha256');
  let offset = 0;
  let readAhead = Buffer.alloc(0);
  const read = async (bytes: number): Promise<Buffer> => {
    if (readAhead.length < bytes) {
      // A new buffer for each read: the caller may keep earlier frames, which are views of the old buffer.
      const buffer = Buffer.alloc(Math.max(bytes, READ_BYTES));
      let filled = 0;
      while (filled < bytes) {
        const { bytesRead } = await file.read(buffer, filled, buffer.length - filled, offset + filled);
        if (bytesRead === 0) throw new ArchiveFault('The file ends too early: it was cut, or its backup broke off.');
        filled += bytesRead;
      }
      readAhead = buffer.subarray(0, filled);
    }
    const piece = readAhead.subarray(0, bytes);
    readAhead = readAhead.subarray(bytes);
    offset += bytes;
    return piece;
  };
  for (let frameIndex = 0; ; frameIndex++) {
    const prefix = await read(PREFIX_BYTES);
    const [headerBytes, bodyBytes] = [prefix.readUInt32LE(0), prefix.readUInt32LE(4)];
    if (headerBytes > MAX_HEADER_BYTES || bodyBytes > MAX_BODY_BYTES) throw unreadable(frameIndex);
    const text = await read(headerBytes);
    const header = parse(text, frameIndex);
    const body = await read(bodyBytes);
    yield { header, body };
    if (header.kind === 'end') {
      if (header.sha256 !== hash.digest('hex'))
        throw new ArchiveFault('The file was changed: its checksum does not match.');
      const { size } = await file.stat();
      if (size !== offset) throw new ArchiveFault(`The file has ${size - offset} bytes behind its end.`);
      return;
    }
    hash.update(prefix).update(text).update(body);
  }
}

function parse(text: Buffer, frameIndex: number): Header {
  let value: unknown;
  try {
    value = JSON.parse(text.toString('utf8'));
  } catch {
    throw unreadable(frameIndex);
  }
  const versioned = frameIndex === 0 ? versionedSchema.safeParse(value).data : undefined;
  if (versioned?.kind === 'backup' && versioned.version !== ARCHIVE_VERSION)
    throw new ArchiveFault(
      `The backup has format ${versioned.version}; this release of Pie reads format ${ARCHIVE_VERSION}.`,
    );
  const parsed = headers.safeParse(value);
  if (!parsed.success || (parsed.data.kind === 'backup') !== (frameIndex === 0)) throw unreadable(frameIndex);
  return parsed.data;
}

const unreadable = (frameIndex: number): ArchiveFault =>
  new ArchiveFault(
    frameIndex === 0 ? 'The file is not a backup of Pie.' : `Frame ${frameIndex + 1} of the file cannot be read.`,
  );

/** Encodes byte strings as the body of a frame: each string follows 4 bytes with its length. */
export function listBody(items: readonly Uint8Array[]): Buffer {
  const lengths = items.map(({ length }) => {
    const prefix = Buffer.alloc(4);
    prefix.writeUInt32LE(length);
    return prefix;
  });
  return Buffer.concat(items.flatMap((item, i) => [lengths[i] as Buffer, item]));
}

/** The byte strings in a body that `listBody` made. @throws ArchiveFault for another body */
export function listOf(body: Buffer): Buffer[] {
  const items: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const end = at + 4 <= body.length ? at + 4 + body.readUInt32LE(at) : Number.POSITIVE_INFINITY;
    if (end > body.length) throw new ArchiveFault('A list of the file ends too early.');
    items.push(body.subarray(at + 4, end));
    at = end;
  }
  return items;
}
