/** Kinds of frames: the first of a connection, a request, the withdrawal of a request, and an answer. */
export const FRAME = { hello: 1, request: 2, cancel: 3, answer: 4 } as const;

export interface Frame {
  readonly kind: number;
  /** Number of the request. */
  readonly id: number;
  readonly json: unknown;
  readonly floats: Float32Array;
}

/** Longest frame. A call within the bounds of `messages.ts` can be longer, since JSON escapes texts: the client refuses it. */
export const MAX_FRAME_BYTES = 16 * 2 ** 20;
const HEADER_BYTES = 13;
const FLOAT_BYTES = 4;
const NO_FLOATS = new Float32Array(0);

/** Bytes that are not a valid frame: the connection ends. */
export class FrameFault extends Error {
  override readonly name = 'FrameFault';
}

/** Encodes `u32` number of bytes that follow, `u8` kind, `u32` id, `u32` number of bytes of the JSON, the JSON, and the floats; little-endian. */
export function encodeFrame(kind: number, id: number, json: unknown, floats: Float32Array = NO_FLOATS): Buffer {
  const text = Buffer.from(JSON.stringify(json));
  const frame = Buffer.allocUnsafe(HEADER_BYTES + text.length + floats.byteLength);
  frame.writeUInt32LE(frame.length - 4, 0);
  frame.writeUInt8(kind, 4);
  frame.writeUInt32LE(id, 5);
  frame.writeUInt32LE(text.length, 9);
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
      const length = this.#peek(4).readUInt32LE(0);
      if (length > MAX_FRAME_BYTES || length < HEADER_BYTES - 4)
        throw new FrameFault(
          `the peer announced a frame of ${length} bytes; ${HEADER_BYTES - 4} to ${MAX_FRAME_BYTES} are allowed`,
        );
      if (this.#bytes < length + 4) return frames;
      frames.push(decode(this.#shift(length + 4)));
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
  const jsonBytes = frame.readUInt32LE(9);
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
  return { kind: frame.readUInt8(4), id: frame.readUInt32LE(5), json, floats };
}
