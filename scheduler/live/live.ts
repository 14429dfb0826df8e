import type { InvocationEvent } from '../invocations/types.ts';

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
