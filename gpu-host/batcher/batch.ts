import type { BatchCall } from './call.ts';

/** Part of a call that goes with a batch. */
export interface Grant {
  readonly call: BatchCall;
  /** Inputs of this batch, from where the call stands. */
  readonly tokens: number;
  /** Calls before it in this batch whose keys and values it needs: when one of them fails, so must this. Absent when there is none. */
  readonly after?: readonly BatchCall[];
}

/** What the device does next: encodings alone; or forwards, then projections, of which either may be empty. */
export interface Batch {
  /** A call that follows another one of the batch comes behind it. */
  readonly forwards: readonly Grant[];
  /** Projections of states that are there, or that the forwards of this batch make. */
  readonly projections: readonly BatchCall[];
  /** Pictures to encode in one step. */
  readonly encodings: readonly BatchCall[];
}
