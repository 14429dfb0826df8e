import type { BatchCall } from './call.ts';

/** Maximum time by which exchanged turns may delay a call, in levels of priority; a level is worth `agingMs`. */
const MAX_YIELD_LEVELS = 10;
/** Maximum calls that exchange turns with each other; further calls of their group keep their own turns. This bounds the cost of a batch. */
const MAX_GROUP_CALLS = 1024;

/** A call's place in the order of calls of its priority: by time, then by `turn`. */
interface Turn {
  /** Time at which the call with this turn counts as having arrived, milliseconds of the batcher's clock. */
  readonly countsFromMs: number;
  readonly turn: number;
}

/**
 * Makes calls of workflows exchange their turns, so that the query that came first goes first, and within a query the deepest node (Ayo,
 * ASPLOS '25, Algorithm 2). A call that gets a later turn *yields*.
 *
 * Guests choose the depths, so a depth must delay only calls of the same tenant. Therefore turns are only exchanged within a group: calls of
 * one tenant and priority that have a depth. As a whole the group keeps its turns, so every other call finds as many calls ahead of it as
 * without depths. A call that gave its early turn away has only the later one from then on. Otherwise it could give the same early turn to
 * one call after another.
 *
 * Short calls and long ones form separate groups. A batch takes short calls first, so the early turn of a long call would be of little use to a
 * short one. Losing the turn would harm the long call: a run counts as newly arrived after each token, so each step of the run would take the early
 * turn of one more prompt, until all prompts had yielded for as long as they may and went in their order of arrival.
 *
 * A call yields for {@link mostYieldMs} at most and then keeps its turn, so its wait is bounded.
 *
 * @param calls ready calls of one kind
 * @param agingMs milliseconds of waiting that a level of priority is worth
 * @param maxShortTokens maximum inputs of a call that counts as short
 */
export function takeTurnsInTopology(calls: readonly BatchCall[], agingMs: number, maxShortTokens: number): void {
  const groups = new Map<string, BatchCall[]>();
  for (const call of calls) {
    if (call.depth === undefined) continue;
    // A more urgent call waits for this one and has lent it urgency (`lentMs`). This call goes by the lent urgency even without its own turn. If
    // another call took that turn, one more call would be ahead of the calls outside the group.
    if (call.links?.lentMs !== undefined) continue;
    const key = `${call.tokens > maxShortTokens} ${call.queue.priority} ${call.queue.tenant}`;
    const group = groups.get(key);
    if (!group) groups.set(key, [call]);
    else if (group.length < MAX_GROUP_CALLS) group.push(call);
  }
  for (const group of groups.values()) if (group.length > 1) exchange(group, agingMs);
}

function exchange(group: readonly BatchCall[], agingMs: number): void {
  let lastTurnMs = Number.NEGATIVE_INFINITY;
  for (const call of group) lastTurnMs = Math.max(lastTurnMs, call.arrivedMs + call.yieldMs);
  // Any call of an exchange may get the last turn. A call that may not yield until that turn keeps its own.
  const calls = group.filter((call) => call.arrivedMs + mostYieldMs(call, agingMs) >= lastTurnMs);
  const turns = calls.map(({ arrivedMs, yieldMs, turn }): Turn => ({ countsFromMs: arrivedMs + yieldMs, turn }));
  turns.sort((a, b) => a.countsFromMs - b.countsFromMs || a.turn - b.turn);
  calls.sort(inTopology);
  for (const [i, call] of calls.entries()) {
    const { countsFromMs, turn } = turns[i] as Turn;
    call.yieldMs = countsFromMs - call.arrivedMs;
    call.turn = turn;
  }
}

/** Maximum time that a call may yield, milliseconds. It does not depend on the priority, so that a change of priority undoes no exchanged turn. */
export const mostYieldMs = ({ depth }: BatchCall, agingMs: number): number =>
  depth === undefined ? 0 : MAX_YIELD_LEVELS * agingMs;

/** Compares two calls by query, the earliest first, then by depth, the deepest first, then by arrival. */
function inTopology(a: BatchCall, b: BatchCall): number {
  return a.queue.query - b.queue.query || (b.depth ?? 0) - (a.depth ?? 0) || a.arrival - b.arrival;
}
