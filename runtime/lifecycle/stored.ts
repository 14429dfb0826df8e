import type { StopReason } from '#scheduler/admission/job.ts';
import { StoreError } from '#scheduler/store/errors.ts';

const STORE_RETRY_MS = 100;
const ANSWER_RETRY_MS = [20, 50, 100, 200, 400] as const;

/** True when this runtime was declared dead: it owns its invocations no more. */
export const isLost = (signal: AbortSignal): boolean =>
  signal.aborted && (signal.reason as StopReason).code === 'runtime-lost';

/** Repeats a call while the store cannot be reached; returns null when this runtime loses the invocation meanwhile. */
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

/** Repeats a call, after growing pauses, while the store cannot be reached; returns null when it is abandoned. */
export async function untilAnswered<T>(abandoned: () => boolean, call: () => Promise<T>): Promise<T | null> {
  for (let attempt = 0; ; attempt++) {
    if (abandoned()) return null;
    try {
      return await call();
    } catch (error) {
      if (StoreError.from(error).code !== 'store-unavailable') throw error;
      const pauseMs = ANSWER_RETRY_MS[Math.min(attempt, ANSWER_RETRY_MS.length - 1)] ?? 400;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}
