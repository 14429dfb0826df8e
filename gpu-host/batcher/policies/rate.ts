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
