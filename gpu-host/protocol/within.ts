import { deadline } from '#scheduler/links/deadline.ts';

/** True when the promise resolves within `ms` milliseconds; false when they pass first. */
export async function within(ms: number, promise: Promise<unknown>): Promise<boolean> {
  let stop: () => void = () => undefined;
  const late = new Promise<boolean>((resolve) => {
    stop = deadline(ms, () => resolve(false));
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    stop();
  }
}
