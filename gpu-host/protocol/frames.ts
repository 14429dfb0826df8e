import { ProtocolFault } from './errors.ts';
import { FRAME, FRAME_HEADER_WORDS, type FrameKind, HELLO_VERSION, MAX_FRAME_WORDS } from './wire.ts';
import { WordReader } from './words.ts';

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
