import type { InvocationEvent } from '../invocations/types.ts';
import type { Versions } from '../links/versions.ts';

/** Callbacks of a follower for the events that an invocation's runtime shows. */
export interface LiveFollower {
  /**
   * The log has the events up to number `logged`. The follower gets the later ones now, and every new event as it comes. Called again for a later
   * attempt, after a reconnection, and when events reached the log without being shown to this follower.
   *
   * @param epoch epoch of the attempt that shows the events
   */
  attached(logged: number, epoch: number): void;
  /** Events with consecutive numbers; the first follows the last known event. */
  events(events: readonly InvocationEvent[]): void;
  /** The runtime cannot be reached (any more); no events come until the next `attached`. */
  lost(): void;
}

/** Address at which a runtime shows events. */
export interface LiveAddress {
  /** A unix socket's path, or `host:port`. */
  readonly address: string;
  /** The machine that must answer; absent for a runtime on this machine. */
  readonly machine?: string;
}

/** Stops following. @param isOver true when the attempt has ended */
export type Unfollow = (isOver?: boolean) => void;

/** A source of events that are shown before their log has them. */
export interface LiveSource {
  /**
   * Follows an invocation that a runtime runs, or is about to run, until the returned function is called.
   *
   * @param isPushed true when this process submitted the invocation, so that the runtime shows the events without being asked. When false, the
   *   source asks for the events; this is harmless when the runtime shows them anyway.
   */
  follow(runtimeId: string, id: string, follower: LiveFollower, isPushed?: boolean): Unfollow;
}

/**
 * Frames between a runtime and the gateways that follow its events. A frame is 4 bytes of length, little endian, then the fields as text, separated
 * by NUL. Neither ids nor JSON text contain NUL.
 * - A request of a gateway has two fields: its name, and the invocation's id or another argument.
 * - An event of a runtime has four fields: the invocation's id, and the event's number, name and data.
 * - With the name `attached`, the number is that of the last event in the log, and the data is the attempt's epoch.
 * - With an empty id, the four fields are a notice about the connection.
 */

/** Number of fields of a gateway's request. */
export const REQUEST_FIELDS = 2;
/** Number of fields of a runtime's event, of its `attached`, and of its notice. */
export const EVENT_FIELDS = 4;

/** Versions of the frames' content. When you add a version, keep the one before it. */
export const LIVE_VERSIONS: Versions = { oldest: 1, newest: 1 };

const HEADER_BYTES = 4;
/** Longest content of a frame: an event of 1 MiB in base64, with some margin. A reader refuses a longer frame. */
const MAX_FRAME_BYTES = 4 << 20;

export function encodeFrame(fields: readonly string[]): Buffer {
  const text = fields.join('\0');
  const length = Buffer.byteLength(text);
  const frame = Buffer.allocUnsafe(HEADER_BYTES + length);
  frame.writeUInt32LE(length);
  frame.write(text, HEADER_BYTES);
  return frame;
}

/** Cuts a byte stream into frames. It holds at most one unfinished frame. */
export class FrameReader {
  #parts: Buffer[] = [];
  #length = 0;
  /** Bytes of the frame being collected, its header included; 0 while unknown. */
  #expectedBytes = 0;

  /** Takes a chunk, and calls `handle` for each frame that it completes. Throws for a frame that is too large; the stream is then unreadable. */
  push(chunk: Buffer, handle: (fields: string[]) => void): void {
    this.#parts.push(chunk);
    this.#length += chunk.length;
    if (this.#length < Math.max(HEADER_BYTES, this.#expectedBytes)) return;
    const bytes = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#length);
    let start = 0;
    this.#expectedBytes = 0;
    while (bytes.length - start >= HEADER_BYTES) {
      const length = bytes.readUInt32LE(start);
      if (length > MAX_FRAME_BYTES) throw new Error(`A frame of ${length} bytes; ${MAX_FRAME_BYTES} is the limit.`);
      const end = start + HEADER_BYTES + length;
      if (end > bytes.length) {
        this.#expectedBytes = end - start;
        break;
      }
      handle(bytes.toString('utf8', start + HEADER_BYTES, end).split('\0'));
      start = end;
    }
    this.#parts = start === bytes.length ? [] : [bytes.subarray(start)];
    this.#length = bytes.length - start;
  }
}
