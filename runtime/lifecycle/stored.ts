import type { StopReason } from '#scheduler/admission/job.ts';
import { StoreError } from '#scheduler/store/errors.ts';

/** Pauses of `untilStored` between the tries of a call. The last pause of a list applies to all further tries. */
const EVEN_PAUSES_MS: readonly number[] = [100];
/** Default pauses of `untilAnswered`. */
const GROWING_PAUSES_MS: readonly number[] = [20, 50, 100, 200, 400];

/** True when this runtime was declared dead, so that it no longer owns the invocation. @param signal the invocation's signal to stop */
export const isLost = (signal: AbortSignal): boolean =>
  signal.aborted && (signal.reason as StopReason).code === 'runtime-lost';

/** Repeats a call every 100 ms while the store cannot be reached; resolves to null once this runtime was declared dead. */
export const untilStored = <T>(call: () => Promise<T>, signal: AbortSignal): Promise<T | null> =>
  untilAnswered(() => isLost(signal), call, EVEN_PAUSES_MS);

/** Repeats a call while the store cannot be reached, by default after growing pauses; resolves to null once `isAbandoned` returns true. */
export async function untilAnswered<T>(
  isAbandoned: () => boolean,
  call: () => Promise<T>,
  pausesMs = GROWING_PAUSES_MS,
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
