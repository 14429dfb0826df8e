import { type BatchCall, isDeviceCall } from '../call.ts';
import { Departure, type WaitingCalls } from '../departure.ts';
import { DEFAULT_LIMITS } from '../select.ts';

/**
 * Policy for when a batch leaves.
 * - `adaptive`: the product's (`Departure`).
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
function checkPolicy(policy: BatchPolicy): void {
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

interface RateMoment {
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

/** Departure under one of the policies. */
class ComparedDeparture extends Departure {
  override readonly sendsAlone: boolean;
  readonly #policy: BatchPolicy;
  readonly #maxCalls: number;
  readonly #rate = new ArrivalRate();
  #stepMs = 0;

  /** @throws RangeError when a bound of the policy is not a positive number */
  constructor(policy: BatchPolicy, maxCalls: number) {
    checkPolicy(policy);
    super();
    this.sendsAlone = policy.kind === 'eager';
    this.#policy = policy;
    this.#maxCalls = maxCalls;
  }

  override came(call: BatchCall, nowMs: number): void {
    super.came(call, nowMs);
    if (isDeviceCall(call)) this.#rate.arrived(nowMs);
  }

  override ended(nowMs: number, stepMs: number): void {
    super.ended(nowMs, stepMs);
    this.#stepMs = stepMs;
  }

  override gathers(nowMs: number): boolean {
    return !this.sendsAlone || super.gathers(nowMs);
  }

  override waitMs(calls: WaitingCalls, nowMs: number): number {
    const policy = this.#policy;
    const { forwards, projections, encodings, sinceMs } = calls;
    const ready = forwards.length + projections.length + encodings.length;
    const isFull = forwards.length >= this.#maxCalls || projections.length >= this.#maxCalls;
    switch (policy.kind) {
      case 'adaptive':
        return super.waitMs(calls, nowMs);
      case 'eager':
        return 0;
      case 'k-only':
        return isFull ? 0 : kOnlyWaitMs(policy, ready, longestWaitMs(calls, nowMs));
      case 't-only':
        return tOnlyWaitMs(policy, sinceMs, nowMs);
      case 'rate':
        if (isFull) return 0;
        return rateWaitMs(policy, {
          ready,
          waitedMs: longestWaitMs(calls, nowMs),
          stepMs: this.#stepMs,
          gapMs: this.#rate.gapMs,
          sinceMs: this.#rate.sinceMs(nowMs),
        });
    }
  }
}

/** The departure of one batcher under the policy; undefined for the product's own. */
export function departureOf(policy: BatchPolicy, maxCalls = DEFAULT_LIMITS.maxCalls): Departure | undefined {
  return policy.kind === 'adaptive' ? undefined : new ComparedDeparture(policy, maxCalls);
}

function longestWaitMs({ forwards, projections, encodings }: WaitingCalls, nowMs: number): number {
  let oldestMs = nowMs;
  for (const calls of [forwards, projections, encodings])
    for (const call of calls) oldestMs = Math.min(oldestMs, call.arrivedMs);
  return nowMs - oldestMs;
}
