import type { BatchCall } from './call.ts';

/** Time between calls that yield to the same one, which keeps their order; milliseconds. */
const APART_MS = 0.001;

/**
 * Lets calls of workflows yield to each other: the query that came first goes first, and of one query the deepest node (Ayo, ASPLOS '25,
 * Algorithm 2). Each call of a tenant that has a depth counts as arrived after those before it in this order.
 *
 * Guests choose the depths, so a depth may only cost its own calls time. A call never counts as arrived before its arrival: no call of
 * another tenant, and none without a depth, finds more calls ahead of it than it would without depths. A call yields as much as the
 * least priority would cost it, and no more, so that the bound on waits holds for it, too.
 *
 * @param calls ready calls of one kind
 */
export function yieldInTopology(calls: readonly BatchCall[], agingMs: number): void {
  const tenants = new Map<string, BatchCall[]>();
  for (const call of calls) {
    call.yieldMs = 0;
    if (call.depth === undefined) continue;
    const own = tenants.get(call.queue.tenant);
    if (own) own.push(call);
    else tenants.set(call.queue.tenant, [call]);
  }
  for (const own of tenants.values()) {
    own.sort(inTopology);
    let latestMs = Number.NEGATIVE_INFINITY;
    for (const call of own) {
      const urgencyMs = call.arrivedMs - call.queue.priority * agingMs;
      latestMs = Math.max(latestMs + APART_MS, urgencyMs);
      call.yieldMs = Math.min(latestMs - urgencyMs, mostYieldMs(call, agingMs));
    }
  }
}

/** Most that a call may yield, milliseconds. */
export const mostYieldMs = ({ queue, depth }: BatchCall, agingMs: number): number =>
  depth === undefined ? 0 : (queue.priority + queue.maxPriority) * agingMs;

function inTopology(a: BatchCall, b: BatchCall): number {
  return a.queue.query - b.queue.query || (b.depth ?? 0) - (a.depth ?? 0) || a.arrival - b.arrival;
}
