import type { BatchCall } from '../call.ts';

/** The call that leaves next, alone: the first to arrive, whatever its priority. A run counts as newly arrived with each token. */
export function earliest(...ready: readonly (readonly BatchCall[])[]): BatchCall | undefined {
  let found: BatchCall | undefined;
  for (const calls of ready) for (const call of calls) if (!found || cameBefore(call, found)) found = call;
  return found;
}

function cameBefore(a: BatchCall, b: BatchCall): boolean {
  return a.arrivedMs < b.arrivedMs || (a.arrivedMs === b.arrivedMs && a.arrival < b.arrival);
}
