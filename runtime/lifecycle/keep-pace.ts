import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Pace } from './pace.ts';

const REVIEW_MS = 100;
/** Interval of the timer whose lateness is measured. */
const RESOLUTION_MS = 2;
/** Smallest relative change of the limit that is reported. */
const WORTH_REPORTING = 0.1;

export interface PacedOptions {
  /** Number of invocations that run now. */
  readonly running: () => number;
  /** Reports how many invocations the thread keeps up with. */
  readonly tell: (limit: number) => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * Measures how late the thread is, and reports how many invocations it keeps up with whenever that number changes. Returns a function that
 * stops it. While few invocations run it measures nothing: the timer alone would wake the process 500 times a second.
 */
export function keepPace(pace: Pace, { running, tell, onError }: PacedOptions): () => void {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  /** The thread's mean lag since the last call, milliseconds; 0 when nothing was measured. */
  const lag = (shouldMeasure: boolean): number => {
    if (!shouldMeasure) delay.disable();
    // `enable` returns true when this call started the measurement.
    const isNew = !shouldMeasure || delay.enable();
    const lagMs = delay.count === 0 ? REVIEW_MS : Math.max(0, delay.mean / 1e6 - RESOLUTION_MS);
    delay.reset();
    return isNew ? 0 : lagMs;
  };
  let reported = pace.limit;
  let isReporting = false;
  const timer = setInterval(() => {
    const count = running();
    const lagMs = lag(pace.mayCut(count));
    const limit = pace.review(lagMs, count);
    if (isReporting || limit === reported || (!pace.isOpen && Math.abs(limit - reported) < reported * WORTH_REPORTING))
      return;
    reported = limit;
    isReporting = true;
    tell(limit)
      .catch(onError)
      .finally(() => {
        isReporting = false;
      });
  }, REVIEW_MS);
  return () => {
    clearInterval(timer);
    delay.disable();
  };
}
