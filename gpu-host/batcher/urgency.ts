import { type BatchCall, isReleased } from './call.ts';
import { linksOf } from './links.ts';
import { mostYieldMs } from './topology.ts';

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
