import type { BatchCall } from './call.ts';

/** Maximum time that a call may yield, as a number of priority levels. */
const MAX_YIELD_LEVELS = 10;
/** Maximum calls of a group that exchange turns; later calls keep their own. This bounds the cost of a batch. */
const MAX_GROUP_CALLS = 1024;

/** A place in the order of all calls. */
interface Turn {
  readonly agedMs: number;
  readonly turn: number;
}

/**
 * Lets calls of workflows take each other's turns: the query that came first goes first, and of one query the deepest node (Ayo, ASPLOS '25,
 * Algorithm 2).
 *
 * Guests choose the depths, so a depth may only cost its own tenant's calls time. The calls of a tenant that have a depth keep the turns that
 * they have together: every other call finds as many calls ahead of it as without depths. A turn that was taken is used up, so that a call
 * cannot lend its age again and again. Long calls exchange turns among themselves: short ones go before them in any case, and each step of a
 * run would use up the turn of a prompt, until all prompts had yielded what they may and went in their order of arrival. A call yields for
 * {@link mostYieldMs} at most and then keeps its turn, so its wait is bounded.
 *
 * @param calls ready calls of one kind
 * @param maxShortTokens maximum inputs of a call that counts as short
 */
export function takeTurnsInTopology(calls: readonly BatchCall[], agingMs: number, maxShortTokens: number): void {
  const groups = new Map<string, BatchCall[]>();
  for (const call of calls) {
    // A call that others wait for has their urgency. An exchanged turn would pass this urgency to a call for which they do not wait.
    if (call.depth === undefined || call.links?.lentMs !== undefined) continue;
    const key = `${call.tokens > maxShortTokens} ${call.queue.priority} ${call.queue.tenant}`;
    const group = groups.get(key);
    if (!group) groups.set(key, [call]);
    else if (group.length < MAX_GROUP_CALLS) group.push(call);
  }
  for (const group of groups.values()) if (group.length > 1) exchange(group, agingMs);
}

function exchange(group: readonly BatchCall[], agingMs: number): void {
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const call of group) lastMs = Math.max(lastMs, call.arrivedMs + call.yieldMs);
  const calls = group.filter((call) => call.arrivedMs + mostYieldMs(call, agingMs) >= lastMs);
  const turns = calls.map(({ arrivedMs, yieldMs, turn }): Turn => ({ agedMs: arrivedMs + yieldMs, turn }));
  turns.sort((a, b) => a.agedMs - b.agedMs || a.turn - b.turn);
  calls.sort(inTopology);
  for (const [i, call] of calls.entries()) {
    const { agedMs, turn } = turns[i] as Turn;
    call.yieldMs = agedMs - call.arrivedMs;
    call.turn = turn;
  }
}

/** Maximum time that a call may yield, milliseconds. It does not depend on the priority, so that a change of priority undoes no exchanged turn. */
export const mostYieldMs = ({ depth }: BatchCall, agingMs: number): number =>
  depth === undefined ? 0 : MAX_YIELD_LEVELS * agingMs;

function inTopology(a: BatchCall, b: BatchCall): number {
  return a.queue.query - b.queue.query || (b.depth ?? 0) - (a.depth ?? 0) || a.arrival - b.arrival;
}
