import type { BatchCall } from './call.ts';

/** Bounds of one batch, and how long a call waits until it has gained one level of priority. */
export interface BatchLimits {
  /** Sequences. */
  readonly maxCalls: number;
  /** Inputs over all sequences; only a call that cannot be cut goes past it, and then alone. */
  readonly maxTokens: number;
  /** Milliseconds of waiting that outweigh one level of priority. */
  readonly agingMs: number;
}

export const DEFAULT_LIMITS: BatchLimits = { maxCalls: 128, maxTokens: 512, agingMs: 250 };

/** Inputs up to which a call counts as a decode, unless a batch is smaller than four of them: it is never cut, and long calls leave room for it. */
const SHORT_TOKENS = 16;

/** Part of a call that goes with a batch. */
export interface Grant {
  readonly call: BatchCall;
  /** Inputs of this batch, from where the call stands. */
  readonly tokens: number;
}

/**
 * Sorts by the moment at which a call would have come had priority been time: a level is worth `agingMs` of waiting, so that higher
 * priority goes first and every wait is bounded.
 */
export function sortByUrgency(calls: BatchCall[], agingMs: number): void {
  if (!inOrder(calls, agingMs))
    calls.sort((a, b) => urgency(a, agingMs) - urgency(b, agingMs) || a.arrival - b.arrival);
}

/** Virtual arrival in milliseconds; smaller goes first. */
export function urgency(call: BatchCall, agingMs: number): number {
  return call.arrivedMs - call.queue.priority * agingMs;
}

function inOrder(calls: readonly BatchCall[], agingMs: number): boolean {
  for (let i = 1; i < calls.length; i++) {
    const before = calls[i - 1] as BatchCall;
    const after = calls[i] as BatchCall;
    const difference = urgency(before, agingMs) - urgency(after, agingMs);
    if (difference > 0 || (difference === 0 && before.arrival > after.arrival)) return false;
  }
  return true;
}

/**
 * The calls of the next batch, out of `ready` in order of urgency; the most urgent is always among them. `taken` is told of each grant at once and may append calls that become
 * ready by it (the next ones of the same queue); they are considered after the others.
 *
 * Short calls go first; while a long one waits they leave it a quarter of the tokens, so that prefill goes on beneath decode and decode
 * keeps its pace. Long calls are cut to what is left.
 */
export function selectForwards(ready: readonly BatchCall[], limits: BatchLimits, taken: (grant: Grant) => void): void {
  const first = ready[0];
  if (!first) return;
  let calls = 0;
  let tokens = 0;
  const grant = (call: BatchCall, count: number): void => {
    calls++;
    tokens += count;
    taken({ call, tokens: count });
  };
  const short = Math.max(1, Math.min(SHORT_TOKENS, limits.maxTokens >> 2));
  // The most urgent call always goes. If it is long and cannot be cut, it goes before the short ones could take its room.
  const whole = first.tokens > short && !first.chunkable();
  if (whole) grant(first, first.tokens);
  const anyLong = ready.some((call) => call.tokens > short && !(whole && call === first));
  const shortTokens = limits.maxTokens - (anyLong ? Math.max(1, limits.maxTokens >> 2) : 0);
  const longs: BatchCall[] = [];
  for (let i = whole ? 1 : 0; i < ready.length; i++) {
    const call = ready[i] as BatchCall;
    if (call.tokens > short) {
      longs.push(call);
      continue;
    }
    const fits = calls + (anyLong ? 1 : 0) < limits.maxCalls && tokens + call.tokens <= shortTokens;
    if (fits || call === first) grant(call, call.tokens);
  }
  for (const call of longs) {
    const left = limits.maxTokens - tokens;
    if (calls >= limits.maxCalls || left <= 0) return;
    if (call.tokens <= left) grant(call, call.tokens);
    else if (call.chunkable()) grant(call, left);
  }
}
