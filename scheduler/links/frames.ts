/**
 * Frames of a byte stream: 4 bytes with the length of the content, little endian, then the content. Each link gives the content a meaning of its own.
 *
 * Two links have other frames on purpose. The channel to sandboxes (`runtime/channel`) reads bytes of strangers, so its codec shares nothing with others.
 * The GPU host protocol (`gpu-host/protocol/frames.ts`) writes words straight into a buffer that it sends, many calls to a frame.
 */

/** Bytes of the length before a frame's content. */
export const LENGTH_BYTES = 4;

/** The bytes of a connection are no frames, or not those of its link: the connection must end. */
export class FrameFault extends Error {
  override readonly name = 'FrameFault';
}

/** A frame whose content, of `length` bytes from `LENGTH_BYTES` on, the caller writes. */
export function frameFor(length: number): Buffer {
  const frame = Buffer.allocUnsafe(LENGTH_BYTES + length);
  frame.writeUInt32LE(length);
  return frame;
}

/** Cuts a byte stream into frames. It holds at most one unfinished frame. */
export class FrameCutter {
  readonly #min: number;
  readonly #max: number;
  #parts: Buffer[] = [];
  #length = 0;
  /** Bytes of the frame being collected, its length included; 0 while unknown. */
  #expectedBytes = 0;

  /** @param bounds shortest and longest content, in bytes; a longer frame is refused before its content is held */
  constructor({ min = 0, max }: { readonly min?: number; readonly max: number }) {
    this.#min = min;
    this.#max = max;
  }

  /**
   * Takes a chunk, and calls `handle` with the content of each frame that it completes: a view of the stream's bytes.
   *
   * @throws FrameFault when a length is out of bounds; the stream is then unreadable
   */
  push(chunk: Buffer, handle: (content: Buffer) => void): void {
    this.#parts.push(chunk);
    this.#length += chunk.length;
    if (this.#length < Math.max(LENGTH_BYTES, this.#expectedBytes)) return;
    const bytes = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#length);
    let start = 0;
    this.#expectedBytes = 0;
    while (bytes.length - start >= LENGTH_BYTES) {
      const length = bytes.readUInt32LE(start);
      if (length < this.#min || length > this.#max)
        throw new FrameFault(
          `the peer announced a frame of ${length} bytes; the limits are ${this.#min} and ${this.#max}`,
        );
      const end = start + LENGTH_BYTES + length;
      if (end > bytes.length) {
        this.#expectedBytes = end - start;
        break;
      }
      handle(bytes.subarray(start + LENGTH_BYTES, end));
      start = end;
    }
    this.#parts = start === bytes.length ? [] : [bytes.subarray(start)];
    this.#length = bytes.length - start;
  }
}
