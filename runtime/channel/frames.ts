import { ChannelFault, HEADER_BYTES, MAX_PAYLOAD_BYTES } from './limits.ts';

/**
 * Kinds of frames. A *message* is one frame, or several of one kind whose first begins with the message's whole length. Kinds below
 * {@link FIRST_MESSAGE} are signals: they need no credit, are never cut, and overtake waiting messages. If only one side sends a kind, the
 * kind's comment begins with that side.
 */
export const KIND = {
  /** First frame of each side: the fingerprint of its codec's contract. */
  hello: 1,
  /** Number of the peer's bytes that this frame's sender has taken: the peer may send as many more. */
  credit: 2,
  /** Runtime: the invocation is over, with the reason. No more frames of the invocation follow. */
  close: 3,
  /** Sandbox: the answer to `close`. No more frames of the invocation follow. */
  closed: 6,
  /** Runtime: asks the guest to stop. */
  stop: 4,
  /** Runtime: number of bytes of events that the log has taken. */
  written: 5,
  /** Runtime: CPU time that the platform spent for the guest. */
  charge: 7,
  /** Runtime: the time until the guest's new deadline, in ms (u64). */
  deadline: 8,
  /** A control message. Its invocation number is 0, which no invocation has. */
  control: 21,
  /** Runtime: an invocation begins. */
  open: 16,
  /** Runtime: the answer to a call. */
  answer: 17,
  /** Sandbox: a call. */
  call: 18,
  /** Sandbox: the guest has read (1) or dropped (0) a future. */
  release: 19,
  /** Sandbox: the guest's ending. The guest makes no more calls, and the runtime answers with `close`. */
  ended: 20,
} as const;

export const FIRST_MESSAGE = 16;

/** The message continues in the next frame of its invocation. */
export const FLAG_MORE = 1;

/** Receives frames. `payload` is a view that is valid until the call returns. */
export type OnFrame = (invocation: number, kind: number, flags: number, payload: Buffer) => void;

/** Makes a frame: header (payload length, invocation, kind, flags, two zero bytes), `messageLength` unless negative, payload. */
export function frame(
  invocation: number,
  kind: number,
  flags: number,
  payload: Uint8Array,
  messageLength = -1,
): Buffer {
  const start = messageLength < 0 ? HEADER_BYTES : HEADER_BYTES + 4;
  const bytes = Buffer.allocUnsafe(start + payload.length);
  bytes.writeUInt32LE(bytes.length - HEADER_BYTES, 0);
  bytes.writeUInt32LE(invocation, 4);
  bytes[8] = kind;
  bytes[9] = flags;
  bytes.writeUInt16LE(0, 10);
  if (messageLength >= 0) bytes.writeUInt32LE(messageLength, HEADER_BYTES);
  bytes.set(payload, start);
  return bytes;
}

/** Finds the frames in a byte stream. */
export class FrameParser {
  #bytes: Buffer = EMPTY;
  #at = 0;

  add(chunk: Buffer): void {
    const unparsed = this.#bytes.subarray(this.#at);
    this.#bytes = unparsed.length > 0 ? Buffer.concat([unparsed, chunk]) : chunk;
    this.#at = 0;
  }

  /** Hands on one frame. Returns false when none is complete. @throws ChannelFault `bad-frame`, and errors of `onFrame` */
  next(onFrame: OnFrame): boolean {
    const [bytes, at] = [this.#bytes, this.#at];
    if (bytes.length - at < HEADER_BYTES) return this.#keep();
    const length = bytes.readUInt32LE(at);
    if (length > MAX_PAYLOAD_BYTES || bytes.readUInt16LE(at + 10) !== 0) {
      throw new ChannelFault(
        'bad-frame',
        `the peer announced a frame of ${length} bytes, or set bits that have no use`,
      );
    }
    const end = at + HEADER_BYTES + length;
    if (end > bytes.length) return this.#keep();
    this.#at = end;
    onFrame(
      bytes.readUInt32LE(at + 4),
      bytes[at + 8] as number,
      bytes[at + 9] as number,
      bytes.subarray(at + HEADER_BYTES, end),
    );
    return true;
  }

  /** Copies the remaining partial frame, so that the larger chunk around it can be freed. */
  #keep(): false {
    if (this.#at > 0) this.#bytes = this.#at < this.#bytes.length ? Buffer.from(this.#bytes.subarray(this.#at)) : EMPTY;
    this.#at = 0;
    return false;
  }
}

const EMPTY = Buffer.alloc(0);
