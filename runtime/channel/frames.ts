import { ChannelFault } from './fault.ts';
import { HEADER_BYTES, MAX_PAYLOAD_BYTES } from './limits.ts';

/**
 * Kinds of frames. A *message* is one frame, or several of one kind whose first begins with the message's whole length. Kinds below
 * {@link FIRST_MESSAGE} are signals: they need no credit, are never cut, and pass the messages that wait.
 */
export const KIND = {
  /** First frame of each side: which contract its codec is made from. */
  hello: 1,
  /** Bytes that the receiver has taken: as many more may be sent. */
  credit: 2,
  /** Runtime: the invocation is over, and why. Nothing more of it follows. */
  close: 3,
  /** Sandbox: the answer to `close`. Nothing more of the invocation follows. */
  closed: 6,
  /** Runtime: the guest is asked to stop. */
  stop: 4,
  /** Runtime: bytes of events that the log has taken. */
  written: 5,
  /** Runtime: CPU time that the platform spent for the guest. */
  charge: 7,
  /** Both: a message of lane 0, beside the calls of invocations. */
  control: 21,
  /** Runtime: an invocation begins. */
  open: 16,
  /** Runtime: the answer to a call. */
  answer: 17,
  /** Sandbox: a call. */
  call: 18,
  /** Sandbox: the guest has read or dropped a future. */
  letGo: 19,
  /** Sandbox: how the guest ended. It calls nothing more, and the runtime answers with `close`. */
  ended: 20,
} as const;

export const FIRST_MESSAGE = 16;

/** The message goes on in the next frame of its invocation. */
export const FLAG_MORE = 1;

/** What takes frames. `payload` is a view that is valid until the call returns. */
export type OnFrame = (invocation: number, kind: number, flags: number, payload: Buffer) => void;

/** A frame, header first: bytes of its payload, invocation, kind, flags, two bytes of 0. */
export function frame(invocation: number, kind: number, flags: number, payload: Uint8Array, prefix = -1): Buffer {
  const start = prefix < 0 ? HEADER_BYTES : HEADER_BYTES + 4;
  const bytes = Buffer.allocUnsafe(start + payload.length);
  bytes.writeUInt32LE(bytes.length - HEADER_BYTES, 0);
  bytes.writeUInt32LE(invocation, 4);
  bytes[8] = kind;
  bytes[9] = flags;
  bytes.writeUInt16LE(0, 10);
  if (prefix >= 0) bytes.writeUInt32LE(prefix, HEADER_BYTES);
  bytes.set(payload, start);
  return bytes;
}

/** Finds the frames in a stream of bytes. */
export class FrameParser {
  #bytes: Buffer = EMPTY;
  #at = 0;

  add(chunk: Buffer): void {
    const rest = this.#bytes.subarray(this.#at);
    this.#bytes = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    this.#at = 0;
  }

  /** Hands on one frame. False when none is whole. @throws ChannelFault `bad-frame`, and what `onFrame` throws */
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

  /** What is left is less than a frame, and goes into a copy: the chunk is larger. */
  #keep(): false {
    if (this.#at > 0) this.#bytes = this.#at < this.#bytes.length ? Buffer.from(this.#bytes.subarray(this.#at)) : EMPTY;
    this.#at = 0;
    return false;
  }
}

const EMPTY = Buffer.alloc(0);
