import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { Pace } from './pace.ts';

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
