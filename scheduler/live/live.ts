import type { InvocationEvent } from '../invocations/types.ts';

/** Who follows an invocation, as it is told of what its runtime shows. */
export interface LiveFollower {
  /**
   * From here on every event is told as it comes, those behind number `logged` at once; up to it, the log has them. Told again when events were
   * left out, because their follower was slow.
   */
  attached(logged: number): void;
  /** Events in order, each following on the one before. */
  events(events: readonly InvocationEvent[]): void;
  /** The runtime cannot be reached (any more): what it shows is told no more, until `attached`. */
  lost(): void;
}

/** Where events are shown before their log has them. */
export interface LiveSource {
  /** Follows an invocation that a runtime runs, or is about to, until the returned function is called. */
  follow(runtimeId: string, id: string, follower: LiveFollower): () => void;
}
