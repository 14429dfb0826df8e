/** Kinds of frames: the first of a connection, a request, the withdrawal of a request, and an answer. */
export const FRAME = { hello: 1, request: 2, cancel: 3, answer: 4 } as const;

export interface Frame {
  readonly kind: number;
  /** Number of the request. */
  readonly id: number;
  readonly json: unknown;
  readonly floats: Float32Array;
}

/** Maximum bytes of a frame. JSON escapes texts, so a call within the bounds of `messages.ts` can be longer; the client refuses such a call. */
export const MAX_FRAME_BYTES = 16 * 2 ** 20;
/** The length at the start of a frame, which does not count itself. */
const LENGTH_BYTES = 4;
// Offsets of the fields of a frame.
const KIND_AT = 4;
const ID_AT = 5;
const JSON_LENGTH_AT = 9;
const HEADER_BYTES = 13;
const FLOAT_BYTES = 4;
const NO_FLOATS = new Float32Array(0);

/** The bytes of a connection are no valid frame, so the connection ends. */
export class FrameFault extends Error {
  override readonly name = 'FrameFault';
}

/** Encodes a frame: number of bytes that follow (`u32`), kind (`u8`), id (`u32`), number of bytes of the JSON (`u32`), JSON, floats; little-endian. */
export function encodeFrame(kind: number, id: number, json: unknown, floats: Float32Array = NO_FLOATS): Buffer {
  const text = Buffer.from(JSON.stringify(json));
  const frame = Buffer.allocUnsafe(HEADER_BYTES + text.length + floats.byteLength);
  frame.writeUInt32LE(frame.length - LENGTH_BYTES, 0);
  frame.writeUInt8(kind, KIND_AT);
  frame.writeUInt32LE(id, ID_AT);
  frame.writeUInt32LE(text.length, JSON_LENGTH_AT);
  text.copy(frame, HEADER_BYTES);
  Buffer.from(floats.buffer, floats.byteOffset, floats.byteLength).copy(frame, HEADER_BYTES + text.length);
  return frame;
}

/** Takes frames out of the bytes of a socket. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** The frames that are complete with this chunk. @throws FrameFault */
  take(chunk: Buffer): Frame[] {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    const frames: Frame[] = [];
    for (;;) {
      if (this.#bytes < HEADER_BYTES) return frames;
      const length = this.#peek(LENGTH_BYTES).readUInt32LE(0);
      if (length > MAX_FRAME_BYTES || length < HEADER_BYTES - LENGTH_BYTES)
        throw new FrameFault(
          `the peer announced a frame of ${length} bytes; ${HEADER_BYTES - LENGTH_BYTES} to ${MAX_FRAME_BYTES} are allowed`,
        );
      if (this.#bytes < length + LENGTH_BYTES) return frames;
      frames.push(decode(this.#shift(length + LENGTH_BYTES)));
    }
  }

  #peek(count: number): Buffer {
    const [first] = this.#chunks;
    if (first && first.length >= count) return first;
    this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0] as Buffer;
  }

  #shift(count: number): Buffer {
    const buffered = this.#peek(count);
    this.#chunks[0] = buffered.subarray(count);
    this.#bytes -= count;
    if (this.#bytes === 0) this.#chunks = [];
    return buffered.subarray(0, count);
  }
}

function decode(frame: Buffer): Frame {
  const jsonBytes = frame.readUInt32LE(JSON_LENGTH_AT);
  const end = HEADER_BYTES + jsonBytes;
  const floatBytes = frame.length - end;
  if (floatBytes < 0 || floatBytes % FLOAT_BYTES !== 0)
    throw new FrameFault('the lengths in the header of a frame do not fit its size');
  let json: unknown;
  try {
    json = JSON.parse(frame.toString('utf8', HEADER_BYTES, end));
  } catch (cause) {
    throw new FrameFault('the JSON part of a frame cannot be parsed', { cause });
  }
  // A copy, since a view of floats needs an address that is a multiple of four.
  const floats = new Float32Array(floatBytes / FLOAT_BYTES);
  frame.copy(new Uint8Array(floats.buffer), 0, end);
  return { kind: frame.readUInt8(KIND_AT), id: frame.readUInt32LE(ID_AT), json, floats };
}
