import type { BatchCall } from './call.ts';

/** A later call that may go into the same batch, behind this call. */
export interface SoftEdge {
  readonly later: BatchCall;
  /** True when the later call reads or fills a page that this call fills; false when it only must not fill before this call has read. */
  needs: boolean;
}

/** A call's relations to other calls, apart from `BatchCall.dependents`. Most calls have none. */
export class CallLinks {
  /** Later calls that may go once this one is done or precedes them in a batch. */
  softDependents: SoftEdge[] | undefined;
  /** Earlier calls that this one waited for when it came, some of them done by now; kept only for calls of a ranked scoreboard. */
  waitsFor: BatchCall[] | undefined;
  /** Urgency (`urgency.ts`: smaller goes first, ms) that a call which waits for this one has lent to it; undefined while none was more urgent. */
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
