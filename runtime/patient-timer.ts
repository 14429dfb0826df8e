/** A timer that fires this much too late shows that the process was stalled. */
const LATE_MS = 100;
/** Maximum number of times that a late timer is set again. */
const MAX_RETRIES = 3;

/**
 * Calls `callback` after `ms` milliseconds during which this process could run. A busy machine may stall the process and, with it, the work that the
 * caller awaits, so a timer that fires late starts again. The event loop reads the input that arrived meanwhile before it calls `callback`.
 *
 * @returns the function that ends the timer.
 */
export function patientTimer(ms: number, callback: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  const start = (retries: number) => {
    const dueMs = performance.now() + ms;
    timer = setTimeout(() => {
      if (retries > 0 && performance.now() - dueMs > LATE_MS) start(retries - 1);
      else immediate = setImmediate(callback);
    }, ms);
  };
  start(MAX_RETRIES);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}
