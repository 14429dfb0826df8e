import type { InvocationEvent } from '../invocations/types.ts';
import { FrameCutter, frameFor, LENGTH_BYTES } from '../links/frames.ts';
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
 * Frames between a runtime and the gateways that follow its events. The content of a frame is its fields as text, separated by NUL. Neither ids nor
 * JSON text contain NUL.
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

/** Longest content of a frame: an event of 1 MiB in base64, with some margin. A reader refuses a longer frame. */
const MAX_FRAME_BYTES = 4 << 20;

export function encodeFrame(fields: readonly string[]): Buffer {
  const text = fields.join('\0');
  const frame = frameFor(Buffer.byteLength(text));
  frame.write(text, LENGTH_BYTES);
  return frame;
}

/** Reads the fields of frames. */
export class FrameReader {
  readonly #cutter = new FrameCutter({ max: MAX_FRAME_BYTES });

  /** Takes a chunk, and calls `handle` for each frame that it completes. @throws FrameFault */
  push(chunk: Buffer, handle: (fields: string[]) => void): void {
    this.#cutter.push(chunk, (content) => handle(content.toString('utf8').split('\0')));
  }
}
