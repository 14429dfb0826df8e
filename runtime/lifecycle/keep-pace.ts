import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Pace } from './pace.ts';

const REVIEW_MS = 100;
/** Interval of the timer whose lateness is measured. */
const RESOLUTION_MS = 2;
/** Changes smaller than this part are not told. */
const WORTH_TELLING = 0.1;

export interface PacedOptions {
  /** Invocations that run now. */
  readonly running: () => number;
  /** Says how many the thread keeps up with. */
  readonly tell: (limit: number) => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * Measures how late the thread is, and tells how many invocations it keeps up with whenever that changes. Returns what ends it. While few run nothing
 * is measured: the timer alone would wake the process 500 times a second.
 */
export function keepPace(pace: Pace, { running, tell, onError }: PacedOptions): () => void {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  /** How late the thread was since the last call; 0 where nothing was measured. */
  const lag = (measure: boolean): number => {
    if (!measure) delay.disable();
    // It answers whether it has begun with this call.
    const isNew = !measure || delay.enable();
    const lagMs = delay.count === 0 ? REVIEW_MS : Math.max(0, delay.mean / 1e6 - RESOLUTION_MS);
    delay.reset();
    return isNew ? 0 : lagMs;
  };
  let told = pace.limit;
  let telling = false;
  const timer = setInterval(() => {
    const count = running();
    const lagMs = lag(pace.minds(count));
    const limit = pace.review(lagMs, count);
    if (telling || limit === told || (!pace.isOpen && Math.abs(limit - told) < told * WORTH_TELLING)) return;
    told = limit;
    telling = true;
    tell(limit)
      .catch(onError)
      .finally(() => {
        telling = false;
      });
  }, REVIEW_MS);
  return () => {
    clearInterval(timer);
    delay.disable();
  };
}
