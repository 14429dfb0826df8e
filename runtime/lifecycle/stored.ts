import type { StopReason } from '#scheduler/admission/job.ts';
import { StoreError } from '#scheduler/store/errors.ts';

const STORE_RETRIES_MS: readonly number[] = [100];
const ANSWER_RETRIES_MS: readonly number[] = [20, 50, 100, 200, 400];

/** True when this runtime was declared dead: it owns its invocations no more. */
export const isLost = (signal: AbortSignal): boolean =>
  signal.aborted && (signal.reason as StopReason).code === 'runtime-lost';

/** Repeats a call while the store cannot be reached; returns null when this runtime loses the invocation meanwhile. */
export const untilStored = <T>(call: () => Promise<T>, signal: AbortSignal): Promise<T | null> =>
  untilAnswered(() => isLost(signal), call, STORE_RETRIES_MS);

/** Repeats a call, after growing pauses, while the store cannot be reached; returns null once `isAbandoned` returns true. */
export async function untilAnswered<T>(
  isAbandoned: () => boolean,
  call: () => Promise<T>,
  pausesMs = ANSWER_RETRIES_MS,
): Promise<T | null> {
  for (let attempt = 0; ; attempt++) {
    if (isAbandoned()) return null;
    try {
      return await call();
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') throw error;
      const pauseMs = pausesMs[Math.min(attempt, pausesMs.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}
