import type { BatchCall } from './call.ts';

/** Bounds of one batch, and how long a call waits until it has gained one level of priority. */
export interface BatchLimits {
  /** Maximum sequences; also maximum distributions. */
  readonly maxCalls: number;
  /** Maximum inputs over all sequences; only a call that cannot be cut exceeds it, and then alone. */
  readonly maxTokens: number;
  /** Milliseconds of waiting that outweigh one level of priority. */
  readonly agingMs: number;
}

export const DEFAULT_LIMITS: BatchLimits = { maxCalls: 128, maxTokens: 512, agingMs: 250 };

/** Maximum inputs of a decode, unless four of these exceed a batch. A decode is never cut; long calls leave room for it. */
const SHORT_TOKENS = 16;

/** Maximum inputs of a call that counts as short. */
export function mostShortTokens({ maxTokens }: BatchLimits): number {
  return Math.max(1, Math.min(SHORT_TOKENS, maxTokens >> 2));
}

/** Receives a call, and the number of its inputs that go with the batch. */
export type Taker = (call: BatchCall, tokens: number) => void;

/**
 * Chooses the calls of the next batch, which are of `variant`, out of `ready` in order of urgency; the most urgent of the variant is always
 * among them. Calls `take` with each at once; `take` may append calls that become ready by it (the next ones of the same queue, those that
 * follow it in the batch), which are considered last.
 *
 * Short calls go first. While a long one waits they leave it a quarter of the tokens, so that prefill goes on beneath decode and decode
 * keeps its pace. Long calls are cut to the remaining tokens.
 */
export function selectForwards(
  ready: readonly BatchCall[],
  variant: string | undefined,
  limits: BatchLimits,
  take: Taker,
): void {
  const first = ready.find((call) => call.variant === variant);
  if (!first) return;
  const { maxCalls, maxTokens } = limits;
  let calls = 0;
  let tokens = 0;
  const grant = (call: BatchCall, count: number): void => {
    calls++;
    tokens += count;
    take(call, count);
  };
  const short = mostShortTokens(limits);
  const counted = ready.length;
  let longsLeft = 0;
  for (const call of ready) if (call.variant === variant && call.tokens > short) longsLeft++;
  // The variant's most urgent call always goes. If it is long and cannot be cut, it goes before short ones take its room.
  const whole = first.tokens > short && !first.chunkable();
  if (whole) {
    longsLeft--;
    grant(first, first.tokens);
  }
  const longs: BatchCall[] = [];
  let nextLong = 0;
  for (let at = 0; ; ) {
    for (; at < ready.length; at++) {
      const call = ready[at] as BatchCall;
      if (call.variant !== variant || (whole && call === first)) continue;
      if (call.tokens > short) {
        longs.push(call);
        if (at >= counted) longsLeft++;
        continue;
      }
      const callRoom = maxCalls - calls - (longsLeft > 0 ? 1 : 0);
      const tokenRoom = maxTokens - tokens - (longsLeft > 0 ? Math.max(1, maxTokens >> 2) : 0);
      if ((callRoom > 0 && call.tokens <= tokenRoom) || call === first) grant(call, call.tokens);
    }
    const call = longs[nextLong++];
    if (!call) return;
    longsLeft--;
    const left = maxTokens - tokens;
    if (calls >= maxCalls || left <= 0) return;
    if (call.tokens <= left) grant(call, call.tokens);
    else if (mayCut(call)) grant(call, left);
  }
}

/** A call that follows others of the same batch goes whole: the slots of its keys are known only when theirs have been placed. */
function mayCut(call: BatchCall): boolean {
  return !call.links?.follows && call.chunkable();
}
