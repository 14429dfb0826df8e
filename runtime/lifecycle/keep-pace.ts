import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Pace } from './pace.ts';

const REVIEW_MS = 100;
/** Interval of the timer whose lateness is measured. */
const RESOLUTION_MS = 2;
/** Changes smaller than this part are not told to the platform. */
const WORTH_TELLING = 0.1;

/** Who takes invocations. */
export interface Paced {
  readonly running: number;
  resize(slots: number): Promise<void>;
}

/** Has a worker take as many invocations at once as the thread keeps up with. Returns what ends that. */
export function keepPace(pace: Pace, worker: Paced, onError: (error: unknown) => void): () => void {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  let told = pace.limit;
  let telling: Promise<void> | undefined;
  const tell = () => {
    const { limit } = pace;
    const back = limit !== told && pace.isOpen;
    if (telling || (!back && Math.abs(limit - told) < told * WORTH_TELLING)) return;
    told = limit;
    telling = worker.resize(limit).catch(onError);
    void telling.finally(() => {
      telling = undefined;
    });
  };
  const timer = setInterval(() => {
    const lagMs = delay.count === 0 ? REVIEW_MS : Math.max(0, delay.mean / 1e6 - RESOLUTION_MS);
    delay.reset();
    pace.review(lagMs, worker.running);
    tell();
  }, REVIEW_MS);
  return () => {
    clearInterval(timer);
    delay.disable();
  };
}
