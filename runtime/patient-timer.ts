/** A timer that comes so much later than it was set for tells that this process stood still. */
const LATE_MS = 100;
/** How often it is set again for that. */
const AGAIN = 3;

/**
 * Calls back once so much time has passed for this process: a busy machine may let it stand still, with all of its threads, and whoever was to do
 * something meanwhile could not. What has come by then, and was not read while this thread was busy, is read before the call.
 *
 * @returns the function that ends it.
 */
export function patientTimer(ms: number, callback: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  const set = (again: number) => {
    const due = performance.now() + ms;
    timer = setTimeout(() => {
      if (again > 0 && performance.now() - due > LATE_MS) set(again - 1);
      else immediate = setImmediate(callback);
    }, ms);
  };
  set(AGAIN);
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}
