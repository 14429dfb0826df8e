import type { BatchCall } from '../call.ts';

/**
 * Policy for when a batch leaves.
 * - `adaptive`: as soon as the device is free, after at most a short wait for queues whose calls were just answered. The default.
 * - `eager`: every call leaves alone, in order of arrival.
 * - `k-only`: when `calls` calls are ready, or the oldest has waited `maxWaitMs`.
 * - `t-only`: at each tick of a clock of `intervalMs`, with the calls that are ready then.
 * - `rate`: waits for the next call while the expected wait costs the ready calls less than it saves the next one; never past `maxWaitMs`.
 *
 * All but `adaptive` are for comparison (Pie, SOSP '25, section 5.2).
 */
export type BatchPolicy =
  | { readonly kind: 'adaptive' }
  | { readonly kind: 'eager' }
  | { readonly kind: 'k-only'; readonly calls: number; readonly maxWaitMs: number }
  | { readonly kind: 't-only'; readonly intervalMs: number }
  | { readonly kind: 'rate'; readonly maxWaitMs: number };

/** @throws RangeError when a bound of the policy is not a positive number */
export function checkPolicy(policy: BatchPolicy): void {
  for (const [name, bound] of Object.entries(policy)) {
    if (name !== 'kind' && !(bound > 0 && bound < Number.POSITIVE_INFINITY)) {
      throw new RangeError(`batch policy ${policy.kind}: ${name} is ${bound}; a positive number is expected`);
    }
  }
}

/** Remaining milliseconds of the wait for `calls` calls, when `ready` are there and the oldest has waited `waitedMs`. */
export function kOnlyWaitMs(
  policy: { readonly calls: number; readonly maxWaitMs: number },
  ready: number,
  waitedMs: number,
): number {
  return ready >= policy.calls ? 0 : Math.max(0, policy.maxWaitMs - waitedMs);
}

/**
 * Milliseconds until the first tick after `sinceMs`. Since then, calls have been ready and the device free. Ticks are at the multiples of
 * `intervalMs`. A tick while the device computes passes unused.
 */
export function tOnlyWaitMs(policy: { readonly intervalMs: number }, sinceMs: number, nowMs: number): number {
  const nextTickMs = (Math.floor(sinceMs / policy.intervalMs) + 1) * policy.intervalMs;
  return Math.max(0, nextTickMs - nowMs);
}

/** Weight of the latest gap in the estimate. */
const GAP_WEIGHT = 0.2;

/** Estimates how far apart calls come, as an exponentially weighted mean of the gaps between them. */
export class ArrivalRate {
  #gapMs: number | undefined;
  #lastMs: number | undefined;

  arrived(nowMs: number): void {
    if (this.#lastMs !== undefined) {
      const latestMs = nowMs - this.#lastMs;
      this.#gapMs = this.#gapMs === undefined ? latestMs : this.#gapMs + GAP_WEIGHT * (latestMs - this.#gapMs);
    }
    this.#lastMs = nowMs;
  }

  /** Mean gap in milliseconds; undefined until two calls have come. */
  get gapMs(): number | undefined {
    return this.#gapMs;
  }

  /** Milliseconds since the last call. */
  sinceMs(nowMs: number): number {
    return this.#lastMs === undefined ? Number.POSITIVE_INFINITY : nowMs - this.#lastMs;
  }
}

export interface RateMoment {
  readonly ready: number;
  /** Wait of the oldest ready call. */
  readonly waitedMs: number;
  /** Duration of the last step: a call that just misses this batch waits so long for the next one. */
  readonly stepMs: number;
  /** Mean gap between calls. */
  readonly gapMs: number | undefined;
  /** Time since the last call came. */
  readonly sinceMs: number;
}

/**
 * Maximum milliseconds for which waiting for the next call pays.
 *
 * The next call is expected after `gapMs`. Waiting costs each of the `ready` calls that gap and saves the next call a step: it pays while
 * ready × gap < step. Once the current gap has lasted longer than the mean, its length is the better estimate, so the wait ends at step / ready
 * after the last call.
 */
export function rateWaitMs(policy: { readonly maxWaitMs: number }, moment: RateMoment): number {
  const { ready, waitedMs, stepMs, gapMs, sinceMs } = moment;
  if (gapMs === undefined || ready * gapMs >= stepMs) return 0;
  return Math.max(0, Math.min(stepMs / ready - sinceMs, policy.maxWaitMs - waitedMs));
}

/** The call that leaves next, alone: the first to arrive, whatever its priority. A run counts as newly arrived with each token. */
export function earliest(...ready: readonly (readonly BatchCall[])[]): BatchCall | undefined {
  let found: BatchCall | undefined;
  for (const calls of ready) for (const call of calls) if (!found || cameBefore(call, found)) found = call;
  return found;
}

function cameBefore(a: BatchCall, b: BatchCall): boolean {
  return a.arrivedMs < b.arrivedMs || (a.arrivedMs === b.arrivedMs && a.arrival < b.arrival);
}
