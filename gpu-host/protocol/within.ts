import { deadline } from '#scheduler/links/heartbeat.ts';

/** True when the promise resolves within `ms` milliseconds; false when this time passes first. */
export async function within(ms: number, promise: Promise<unknown>): Promise<boolean> {
  let stopTimer: () => void = () => undefined;
  const timeout = new Promise<boolean>((resolve) => {
    stopTimer = deadline(ms, () => resolve(false));
  });
  try {
    return await Promise.race([promise.then(() => true), timeout]);
  } finally {
    stopTimer();
  }
}
