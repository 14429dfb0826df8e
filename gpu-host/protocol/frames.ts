import { ProtocolFault } from './errors.ts';
import {
  FRAME,
  FRAME_HEADER_WORDS,
  type FrameKind,
  HELLO_VERSION,
  MAX_FRAME_WORDS,
  MAX_LIST,
  MAX_TEXT_BYTES,
} from './wire.ts';

const INITIAL_WORDS = 1024;
/** From this number of values on, `set` copies them faster than a loop does. */
const SET_VALUES = 24;

const textEncoder = new TextEncoder();
const textDecoder = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Frames under construction: one growing buffer of words that holds any number of frames, each with any number of entries.
 *
 * An entry is `[words, …fields]`, its own length first. A caller writes its fields between `begin` and `end`. When an entry takes a frame past the
 * limit, the writer closes the frame and opens a new one of the same kind, so that callers never see frame boundaries.
 */
export class FrameWriter {
  /** Version in the headers of later frames. */
  version = HELLO_VERSION;
  #words = new Uint32Array(INITIAL_WORDS);
  #floats = new Float32Array(this.#words.buffer);
  #length = 0;
  #frameStart = -1;
  #frameKind: FrameKind | 0 = 0;
  #entryStart = 0;
  /** True when the entry has a list above the limit. */
  #tooLong = false;

  /** Words written and not yet taken. */
  get length(): number {
    return this.#length;
  }

  /** Words of the last entry. */
  get entryWords(): number {
    return this.#length - this.#entryStart;
  }

  begin(kind: FrameKind): void {
    if (this.#frameKind !== kind) this.#openFrame(kind);
    this.#entryStart = this.#length;
    this.#tooLong = false;
    this.put(0);
  }

  /** Closes the entry. Returns false, and drops the entry, when it is larger than a frame or has a list above its limit. */
  end(): boolean {
    const entryWords = this.#length - this.#entryStart;
    if (this.#tooLong || entryWords + FRAME_HEADER_WORDS > MAX_FRAME_WORDS) {
      this.#length = this.#entryStart;
      return false;
    }
    this.#words[this.#entryStart] = entryWords;
    if (this.#length - this.#frameStart > MAX_FRAME_WORDS) this.#splitFrame();
    return true;
  }

  /** Writes an entry that another writer's `takeEntry` returned. */
  putEntry(kind: FrameKind, fields: Uint32Array): void {
    this.begin(kind);
    this.putAll(fields);
    this.end();
  }

  /** Returns a copy of the fields of the last entry, and empties the writer. */
  takeEntry(): Uint32Array {
    const fields = this.#words.slice(this.#entryStart + 1, this.#length);
    this.take();
    return fields;
  }

  put(value: number): void {
    if (this.#length === this.#words.length) this.#grow(1);
    this.#words[this.#length++] = value;
  }

  putFloat(value: number): void {
    if (this.#length === this.#words.length) this.#grow(1);
    this.#floats[this.#length++] = value;
  }

  /** A number as two words, exact up to 2^53. */
  putWide(value: number): void {
    this.put(value % 0x1_0000_0000);
    this.put(Math.floor(value / 0x1_0000_0000));
  }

  /** Values without their count. */
  putAll(values: Uint32Array | readonly number[]): void {
    const count = values.length;
    if (this.#length + count > this.#words.length) this.#grow(count);
    if (count < SET_VALUES) for (let i = 0; i < count; i++) this.#words[this.#length + i] = values[i] as number;
    else this.#words.set(values, this.#length);
    this.#length += count;
  }

  putFloats(values: Float32Array | readonly number[]): void {
    if (this.#length + values.length > this.#words.length) this.#grow(values.length);
    this.#floats.set(values, this.#length);
    this.#length += values.length;
  }

  /** Count, then the values. Writes nothing of a list above the limit; `end` then drops the entry. */
  putList(values: Uint32Array | readonly number[], limit = MAX_LIST): void {
    if (values.length > limit) {
      this.#tooLong = true;
      return;
    }
    this.put(values.length);
    this.putAll(values);
  }

  /** Byte length, then UTF-8 padded to a whole word. Cuts the text at `maxBytes`. */
  putText(value: string, maxBytes: number = MAX_TEXT_BYTES): void {
    const bytes = textEncoder.encode(value);
    this.putBytes(bytes.length > maxBytes ? bytes.subarray(0, maxBytes) : bytes);
  }

  /** Byte count, then bytes padded to a whole word. */
  putBytes(bytes: Uint8Array): void {
    this.put(bytes.length);
    const words = (bytes.length + 3) >> 2;
    if (this.#length + words > this.#words.length) this.#grow(words);
    this.#words.fill(0, this.#length, this.#length + words);
    new Uint8Array(this.#words.buffer, this.#length * 4, bytes.length).set(bytes);
    this.#length += words;
  }

  /** Returns a copy of everything written so far and empties the writer. */
  take(): Buffer {
    this.#closeFrame();
    const bytes = Buffer.allocUnsafe(this.#length * 4);
    bytes.set(new Uint8Array(this.#words.buffer, 0, bytes.length));
    this.#length = 0;
    if (this.#words.length > MAX_FRAME_WORDS) this.#resize(INITIAL_WORDS);
    return bytes;
  }

  #openFrame(kind: FrameKind): void {
    this.#closeFrame();
    this.#frameStart = this.#length;
    this.#frameKind = kind;
    this.put(0);
    this.put((this.version << 16) | kind);
  }

  #closeFrame(): void {
    if (this.#frameStart >= 0) this.#words[this.#frameStart] = this.#length - this.#frameStart;
    this.#frameStart = -1;
    this.#frameKind = 0;
  }

  /** Ends the frame before the entry just written and puts a new header in front of that entry. */
  #splitFrame(): void {
    const kind = this.#frameKind;
    if (this.#length + FRAME_HEADER_WORDS > this.#words.length) this.#grow(FRAME_HEADER_WORDS);
    this.#words.copyWithin(this.#entryStart + FRAME_HEADER_WORDS, this.#entryStart, this.#length);
    this.#words[this.#frameStart] = this.#entryStart - this.#frameStart;
    this.#frameStart = this.#entryStart;
    this.#words[this.#frameStart + 1] = (this.version << 16) | kind;
    this.#length += FRAME_HEADER_WORDS;
  }

  #grow(words: number): void {
    this.#resize(Math.max(this.#words.length * 2, this.#length + words));
  }

  #resize(size: number): void {
    const next = new Uint32Array(size);
    next.set(this.#words.subarray(0, this.#length));
    this.#words = next;
    this.#floats = new Float32Array(next.buffer);
  }
}

/** Reads fields out of one entry; each read checks that the field ends inside the entry. */
export class WordReader {
  #words: Uint32Array;
  #floats: Float32Array;
  #at: number;
  #end: number;

  constructor(words: Uint32Array, start: number = 0, end: number = words.length) {
    this.#words = words;
    this.#floats = new Float32Array(words.buffer, words.byteOffset, words.length);
    this.#at = start;
    this.#end = end;
  }

  get done(): boolean {
    return this.#at >= this.#end;
  }

  /** Enters the next entry of a frame that ends at `outerEnd`. Returns the entry's length in words. */
  enter(outerEnd: number): number {
    this.#end = outerEnd;
    const start = this.#at;
    const words = this.u32();
    if (words < 1 || words > outerEnd - start)
      throw new ProtocolFault('truncated', `an entry of ${words} words ends past its frame`);
    this.#end = start + words;
    return words;
  }

  /** Leaves the entry, which must have been read to its end. */
  leave(outerEnd: number): void {
    if (this.#at !== this.#end) {
      throw new ProtocolFault('malformed', `an entry has ${this.#end - this.#at} words more than its fields`);
    }
    this.#end = outerEnd;
  }

  u32(): number {
    if (this.#at >= this.#end) throw new ProtocolFault('truncated', 'a field ends past its entry');
    return this.#words[this.#at++] as number;
  }

  i32(): number {
    return this.u32() | 0;
  }

  f32(): number {
    if (this.#at >= this.#end) throw new ProtocolFault('truncated', 'a field ends past its entry');
    return this.#floats[this.#at++] as number;
  }

  wide(): number {
    const low = this.u32();
    return this.u32() * 0x1_0000_0000 + low;
  }

  /** A copy of a list of words. */
  list(): Uint32Array {
    return this.words(this.u32());
  }

  words(count: number): Uint32Array {
    if (count > this.#end - this.#at) throw new ProtocolFault('truncated', `a list of ${count} ends past its entry`);
    const values = this.#words.slice(this.#at, this.#at + count);
    this.#at += count;
    return values;
  }

  floats(count: number): Float32Array {
    if (count > this.#end - this.#at) throw new ProtocolFault('truncated', `a list of ${count} ends past its entry`);
    const values = this.#floats.slice(this.#at, this.#at + count);
    this.#at += count;
    return values;
  }

  text(maxBytes: number = MAX_TEXT_BYTES): string {
    return textDecoder.decode(this.#view('a text', maxBytes));
  }

  /** A copy of bytes. */
  bytes(maxBytes: number): Uint8Array {
    return this.#view('a list', maxBytes).slice();
  }

  #view(what: string, maxBytes: number): Uint8Array {
    const bytes = this.u32();
    const words = Math.ceil(bytes / 4);
    if (bytes > maxBytes) throw new ProtocolFault('malformed', `${what} of ${bytes} bytes; ${maxBytes} is the limit`);
    if (words > this.#end - this.#at)
      throw new ProtocolFault('truncated', `${what} of ${bytes} bytes ends past its entry`);
    const start = this.#words.byteOffset + this.#at * 4;
    this.#at += words;
    return new Uint8Array(this.#words.buffer, start, bytes);
  }
}

/** Receives each whole frame: its kind, a reader at its body, and the body's end. The reader is valid only during the call. */
export type FrameHandler = (kind: FrameKind, reader: WordReader, end: number) => void;

const INITIAL_BYTES = 64 * 1024;

/**
 * Cuts a byte stream into frames. Buffers at most one frame besides the chunk being read, and refuses a bad frame as soon as its header is
 * complete.
 */
export class FrameReader {
  /** The version that all later frames must have. */
  version = HELLO_VERSION;
  #bytes = new Uint8Array(INITIAL_BYTES);
  #words = new Uint32Array(this.#bytes.buffer);
  #length = 0;

  /** Takes a chunk and passes on the frames that it completes. Throws `ProtocolFault`; the stream is unreadable after that. */
  push(chunk: Uint8Array, handle: FrameHandler): void {
    let offset = 0;
    while (offset < chunk.length) {
      const copiedBytes = Math.min(chunk.length - offset, this.#bytes.length - this.#length);
      this.#bytes.set(
        copiedBytes === chunk.length ? chunk : chunk.subarray(offset, offset + copiedBytes),
        this.#length,
      );
      this.#length += copiedBytes;
      offset += copiedBytes;
      this.#drain(handle);
    }
  }

  #drain(handle: FrameHandler): void {
    const available = this.#length >> 2;
    let start = 0;
    let neededWords = 0;
    while (available - start >= FRAME_HEADER_WORDS) {
      const length = this.#words[start] as number;
      const kind = checkHeader(length, this.#words[start + 1] as number, this.version);
      if (available - start < length) {
        neededWords = length;
        break;
      }
      handle(kind, new WordReader(this.#words, start + FRAME_HEADER_WORDS, start + length), start + length);
      start += length;
    }
    if (start > 0) {
      this.#bytes.copyWithin(0, start * 4, this.#length);
      this.#length -= start * 4;
    }
    if (neededWords * 4 > this.#bytes.length) this.#grow(neededWords * 4);
  }

  #grow(bytes: number): void {
    const newBytes = new Uint8Array(bytes);
    newBytes.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = newBytes;
    this.#words = new Uint32Array(newBytes.buffer);
  }
}

const KINDS: ReadonlySet<number> = new Set(Object.values(FRAME));

function checkHeader(length: number, versionAndKind: number, expected: number): FrameKind {
  const version = versionAndKind >>> 16;
  const kind = versionAndKind & 0xffff;
  if (version !== expected) {
    throw new ProtocolFault('version', `a frame of protocol version ${version}; this connection has ${expected}`);
  }
  if (!KINDS.has(kind)) throw new ProtocolFault('malformed', `unknown frame kind ${kind}`);
  if (length > MAX_FRAME_WORDS)
    throw new ProtocolFault('oversized', `a frame of ${length * 4} bytes; ${MAX_FRAME_WORDS * 4} is the limit`);
  if (length < FRAME_HEADER_WORDS)
    throw new ProtocolFault('malformed', `a frame of ${length} words is shorter than its header`);
  return kind as FrameKind;
}
