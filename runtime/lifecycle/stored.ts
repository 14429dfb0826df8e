import type { StopReason } from '#scheduler/admission/job.ts';
import { StoreError } from '#scheduler/store/errors.ts';

const STORE_RETRY_MS = 100;

/** True when this runtime was declared dead: it owns its invocations no more. */
export const isLost = (signal: AbortSignal): boolean =>
  signal.aborted && (signal.reason as StopReason).code === 'runtime-lost';

/** Repeats a call while the store cannot be reached; answers null when this runtime loses the invocation meanwhile. */
export async function untilStored<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T | null> {
  for (;;) {
    if (isLost(signal)) return null;
    try {
      return await call();
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') throw error;
      await new Promise((resolve) => setTimeout(resolve, STORE_RETRY_MS));
    }
  }
}
