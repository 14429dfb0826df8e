import { type BatchCall, isReleased, linksOf } from './call.ts';

/**
 * Virtual arrival in milliseconds; smaller goes first. A level of priority is worth `agingMs` of waiting, so that higher priority goes
 * first and every wait is bounded. A call that others wait for is as urgent as the most urgent of them.
 */
export function urgency(call: BatchCall, agingMs: number): number {
  return urgencyYielding(call, call.yieldMs, agingMs);
}

function urgencyYielding(call: BatchCall, yieldMs: number, agingMs: number): number {
  const ownMs = call.arrivedMs + yieldMs - call.queue.priority * agingMs;
  const lentMs = call.links?.lentMs;
  return lentMs !== undefined && lentMs < ownMs ? lentMs : ownMs;
}

/** True when `call` is more urgent than `other`; among equals, when it has the earlier turn. */
export function isMoreUrgent(call: BatchCall, other: BatchCall, agingMs: number): boolean {
  const difference = urgency(call, agingMs) - urgency(other, agingMs);
  return difference < 0 || (difference === 0 && call.turn < other.turn);
}

/** Sorts the most urgent first; among equals the earliest turn. */
export function sortByUrgency(calls: BatchCall[], agingMs: number): void {
  if (!isInOrder(calls, agingMs)) calls.sort((a, b) => urgency(a, agingMs) - urgency(b, agingMs) || a.turn - b.turn);
}

function isInOrder(calls: readonly BatchCall[], agingMs: number): boolean {
  for (let i = 1; i < calls.length; i++) {
    const before = calls[i - 1] as BatchCall;
    const after = calls[i] as BatchCall;
    if (isMoreUrgent(after, before, agingMs)) return false;
  }
  return true;
}

/**
 * Lends the urgency of `call` to every call that it waits for, directly or not: to those that touch the same resources, to those ahead of
 * them in their queues, and so on. A call that may yield lends the urgency that it keeps after it has yielded the most.
 *
 * The walk stops at a call that is at least as urgent even after it has yielded the most: that call has passed its urgency on before. Later calls of
 * the same priority are less urgent, so the walks raise a call about once for each level of priority.
 */
export function lendUrgency(call: BatchCall, agingMs: number): void {
  const urgencyMs = urgencyYielding(call, mostYieldMs(call, agingMs), agingMs);
  const raised = [call];
  const raise = (earlier: BatchCall): boolean => {
    const earlierMs = urgencyYielding(earlier, mostYieldMs(earlier, agingMs), agingMs);
    if (isReleased(earlier) || earlierMs <= urgencyMs) return false;
    linksOf(earlier).lentMs = urgencyMs;
    raised.push(earlier);
    return true;
  };
  for (let waiter = raised.pop(); waiter; waiter = raised.pop()) {
    for (const earlier of waiter.links?.waitsFor ?? []) if (raise(earlier)) earlier.queue.eachAhead(earlier, raise);
  }
}

/**
 * Call after the priority of `call`'s queue has changed. Lends the new urgency of `call`, and lends `call` the urgency
 * of its dependents again. No lent urgency is taken back.
 */
export function relendUrgency(call: BatchCall, agingMs: number): void {
  lendUrgency(call, agingMs);
  for (const later of call.dependents ?? []) lendUrgency(later, agingMs);
  for (const { later } of call.links?.softDependents ?? []) lendUrgency(later, agingMs);
}

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
