import type { BatchCall } from './call.ts';

/** A later call that may go into the same batch, behind this call. */
export interface SoftEdge {
  readonly later: BatchCall;
  /** True when the later call reads what this call fills; false when it merely must not fill before this call has read. */
  needs: boolean;
}

/** Links that few calls need; a call without conflicts has none. */
export class CallLinks {
  /** Later calls that may go once this one is done or precedes them in a batch. */
  softDependents: SoftEdge[] | undefined;
  /** Earlier calls that this one waits for, some of them done; kept only where queues differ in priority. */
  waitsFor: BatchCall[] | undefined;
  /** Urgency of the most urgent call that waits for this one, where it exceeds this call's own. */
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
