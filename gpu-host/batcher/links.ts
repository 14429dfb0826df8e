import type { BatchCall } from './call.ts';

/** A later call that may go into the same batch as an earlier call, behind it. The earlier call keeps the edge in `softDependents`. */
export interface SoftEdge {
  readonly later: BatchCall;
  /** True when the later call reads or fills a page that the earlier one fills; false when it only fills a page that the earlier one reads. */
  needs: boolean;
}

/** A call's relations to other calls, apart from `BatchCall.dependents`. Most calls have none. */
export class CallLinks {
  /** Later calls that may go once this one is done or precedes them in a batch. */
  softDependents: SoftEdge[] | undefined;
  /** Earlier calls that this one waited for when it came, some of them done by now; kept only for calls of a ranked scoreboard. */
  waitsFor: BatchCall[] | undefined;
  /** Urgency (`urgency.ts`: milliseconds, smaller goes first) lent by a call that waits for this one; undefined until a more urgent call waits. */
  lentMs: number | undefined;
  /** Number of calls that this one follows in the batch under construction. */
  follows = 0;
  /** The calls among the followed ones whose keys and values this call needs. */
  needs: BatchCall[] | undefined;
}

export function linksOf(call: BatchCall): CallLinks {
  call.links ??= new CallLinks();
  return call.links;
}
