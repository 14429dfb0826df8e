import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Logger } from '#scheduler/policies/logger.ts';

export interface PacePolicy {
  /** Maximum invocations at once, when the thread keeps up. */
  readonly most: number;
  /** Lowest limit, unless `most` is lower: other load on the machine must not stop a runtime. */
  readonly least: number;
  /** Lag above which the limit is cut, milliseconds. */
  readonly lagMs: number;
}

export const DEFAULT_LEAST = 32;
export const DEFAULT_LAG_MS = 10;
/** The limit after a review with lag, as a share of the running invocations. */
const DOWN = 0.75;
/** Growth factor of the limit at a review without lag. */
const UP = 1.25;
/** Lag below this part of `lagMs` raises the limit. */
const EASE = 0.5;

/**
 * Limits how many invocations a runtime runs for tenants that hold more than a few slots. Pure: the thread's lag is an argument.
 *
 * The calls of all of a runtime's inferlets share one thread, which can hold a thousand inferlets that wait for devices, tools or clients.
 * Once their work fills the thread, more inferlets only add latency. So the limit follows the lag of the event loop, as congestion control
 * follows loss: multiplicative decrease with lag, multiplicative increase without. A cut ends no invocation, so the next cut
 * waits until no more invocations run than the limit allows. Few invocations cannot cause the lag, so the limit is not cut while few run.
 */
export class Pace {
  readonly #policy: PacePolicy;
  #limit: number;

  constructor(policy: PacePolicy) {
    this.#policy = policy;
    this.#limit = policy.most;
  }

  get limit(): number {
    return this.#limit;
  }

  /** True when the limit is at its maximum. */
  get isOpen(): boolean {
    return this.#limit === this.#policy.most;
  }

  /** True when a review may cut the limit with this many running; otherwise the lag need not be measured. */
  mayCut(running: number): boolean {
    return running > this.#policy.least;
  }

  /** Updates the limit from the lag since the last review and the number of running invocations; returns the new limit. */
  review(lagMs: number, running: number): number {
    const { most, least, lagMs: bound } = this.#policy;
    if (lagMs > bound) {
      if (running > least && running <= this.#limit) this.#limit = Math.max(least, Math.floor(running * DOWN));
    } else if (lagMs < bound * EASE) {
      this.#limit = Math.min(most, Math.ceil(this.#limit * UP));
    }
    return this.#limit;
  }
}

/** Interval between two reviews of the limit. */
const REVIEW_MS = 100;
/** Interval of the timer of `monitorEventLoopDelay`, whose lateness shows how late the thread is. */
const RESOLUTION_MS = 2;
/** Smallest change of the limit that is reported, as a share of the last reported limit. */
const MIN_REPORTED_CHANGE = 0.1;

export interface PacedOptions {
  /** Number of invocations that run now. */
  readonly running: () => number;
  /** Tells the scheduler how many invocations the thread keeps up with; repeats a failed call by itself. */
  readonly tell: (limit: number) => Promise<void>;
  readonly log: Logger;
}

/**
 * Ten times a second, measures how late the thread is and updates the limit: how many invocations the thread keeps up with. Tells the scheduler
 * the limit when it has changed by a tenth or is back at its maximum. While few invocations run, `keepPace` measures nothing: the timer of the
 * measurement alone would wake the process 500 times a second.
 *
 * @returns the function that ends the reviews
 */
export function keepPace(pace: Pace, { running, tell, log }: PacedOptions): () => void {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  /**
   * The thread's mean lag since the last review, milliseconds; 0 when nothing was measured.
   *
   * @param shouldMeasure begins the measurement or lets it go on when true; ends it when false
   */
  const lag = (shouldMeasure: boolean): number => {
    if (!shouldMeasure) delay.disable();
    // `enable` returns true when this call started the measurement.
    const wasOff = !shouldMeasure || delay.enable();
    // Without a sample, the thread was busy for the whole interval.
    const lagMs = delay.count === 0 ? REVIEW_MS : Math.max(0, delay.mean / 1e6 - RESOLUTION_MS);
    delay.reset();
    return wasOff ? 0 : lagMs;
  };
  let reportedLimit = pace.limit;
  let isReporting = false;
  const timer = setInterval(() => {
    const count = running();
    const lagMs = lag(pace.mayCut(count));
    const limit = pace.review(lagMs, count);
    const isSmallChange = Math.abs(limit - reportedLimit) < reportedLimit * MIN_REPORTED_CHANGE;
    if (isReporting || limit === reportedLimit || (isSmallChange && !pace.isOpen)) return;
    reportedLimit = limit;
    isReporting = true;
    tell(limit)
      .catch((error: unknown) => log.warn({ error }, 'the pace of this runtime could not be published'))
      .finally(() => {
        isReporting = false;
      });
  }, REVIEW_MS);
  return () => {
    clearInterval(timer);
    delay.disable();
  };
}
