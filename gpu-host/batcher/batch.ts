import { type BatchCall, linksOf } from './call.ts';
import { NOT_AWAITED } from './pages-ahead.ts';

/** Part of a call that goes with a batch. */
export interface Grant {
  readonly call: BatchCall;
  /** Inputs in this batch, from the call's next one on. */
  readonly tokens: number;
  /**
   * Earlier calls of this batch whose keys and values the call needs: when one fails, this call must fail too. The list
   * may leave out a call that another call of the list needs in turn. Absent when the call needs none.
   */
  readonly after?: readonly BatchCall[];
}

/** The device's next work: encodings alone; or forwards, then projections, of which either may be empty. */
export interface Batch {
  /** In order: a call that follows another one of the batch comes after it. */
  readonly forwards: readonly Grant[];
  /** Projections of states that exist, or that the forwards of this batch make. */
  readonly projections: readonly BatchCall[];
  /** Images to encode in one step. */
  readonly encodings: readonly BatchCall[];
  /**
   * Maps a forward to the ready calls that the batch leaves out because this forward computes their next pages. The
   * forward itself goes with this batch, or found no room in it.
   */
  readonly awaitedBy: ReadonlyMap<BatchCall, readonly BatchCall[]>;
}

/** Calls that went with a batch instead of waiting for its end, since the start. */
export interface RideCounts {
  /** Forwards that went behind a forward whose pages they share. */
  softJoins: number;
  /** Projections that went with the forward that makes their state. */
  projections: number;
}

export type Decision =
  | { readonly kind: 'batch'; readonly batch: Batch }
  /** No call can go, or the device is computing. */
  | { readonly kind: 'idle' }
  /** Calls are ready, but the policy waits for others: ask again when calls came or this time has passed. */
  | { readonly kind: 'wait'; readonly ms: number };

export const IDLE: Decision = { kind: 'idle' };
export const NOTHING: Batch = { forwards: [], projections: [], encodings: [], awaitedBy: NOT_AWAITED };

/** Inputs of a batch's step. The engine takes a step with few inputs for a quick one. Infinite for images: a step that encodes any is never quick. */
export function batchInputs({ forwards, projections, encodings }: Batch): number {
  if (encodings.length > 0) return Number.POSITIVE_INFINITY;
  return forwards.reduce((sum, { tokens }) => sum + tokens, projections.length);
}

export function tenantsOf({ forwards, projections, encodings }: Batch): Set<string> {
  return new Set([...forwards.map(({ call }) => call), ...projections, ...encodings].map(({ queue }) => queue.tenant));
}

/**
 * Unblocks the followers of `call`: forwards that wait for it softly (`SoftEdge`), and projections that wait for it. The batch under construction
 * takes all remaining inputs of `call`, so the followers may join that batch before `call` is done. `onAdmitted` receives each follower that now
 * waits for no other call.
 */
export function admitFollowers(call: BatchCall, onAdmitted: (later: BatchCall) => void): void {
  if (call.dependents) {
    for (const later of call.dependents) if (later.kind === 'project' && --later.blockers === 0) onAdmitted(later);
  }
  if (call.links?.softDependents) {
    for (const { later, needs } of call.links.softDependents) {
      const links = linksOf(later);
      links.follows++;
      if (needs) {
        links.needs ??= [];
        links.needs.push(call);
      }
      if (--later.blockers === 0) onAdmitted(later);
    }
  }
}

/**
 * Blocks all followers of `call` again once the batch is made, because `call` is not done. Followers that found no room wait until `call` is done.
 * Followers in the batch get a blocker, too, since `Scoreboard.remove` takes one from every follower when `call` is done.
 */
export function dismissFollowers(call: BatchCall): void {
  if (call.dependents) for (const later of call.dependents) if (later.kind === 'project') later.blockers++;
  if (call.links?.softDependents) {
    for (const { later } of call.links.softDependents) {
      const links = linksOf(later);
      links.follows = 0;
      links.needs = undefined;
      later.blockers++;
    }
  }
}
