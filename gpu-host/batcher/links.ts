import type { BatchCall } from './call.ts';

/** A later call that may share this one's batch, behind it. */
export interface SoftEdge {
  readonly later: BatchCall;
  /** Whether the later one needs what this one fills; otherwise it only must not fill before this one has read. */
  needs: boolean;
}

/** What few calls need; one that meets no other has none. */
export class CallLinks {
  /** Later calls that may go once this one is done or precedes them in a batch. */
  softDependents: SoftEdge[] | undefined;
  /** Earlier calls that this one waits for, some of them done; kept only where queues differ in priority. */
  waitsFor: BatchCall[] | undefined;
  /** Urgency of the most urgent call that waits for this one, where that exceeds its own. */
  lentMs: number | undefined;
  /** While a batch is made, how many calls of it this one follows, */
  follows = 0;
  /** and those of them whose keys and values it needs. */
  needs: BatchCall[] | undefined;
}

export function linksOf(call: BatchCall): CallLinks {
  call.links ??= new CallLinks();
  return call.links;
}
