/** Longest wait, at an inferlet's end, for the GPU hosts' final usage: about a device step. */
const LAST_USAGE_MS = 250;

/** Waits for a promise, at most `LAST_USAGE_MS`. */
export async function soon(promise: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, LAST_USAGE_MS);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
