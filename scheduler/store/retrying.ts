const RETRY_MS = 1000;

/**
 * Runs work on request, one run at a time: requests during a run cause one more. A failed run is reported and repeated after a second.
 *
 * @returns `run` resolves once a run that began after the request has ended, also when it failed; `stop` ends the repetitions
 */
export function retrying(
  work: () => Promise<void>,
  onError: (error: unknown) => void,
): { run(): Promise<void>; stop(): void } {
  let running: Promise<void> | undefined;
  let again = false;
  let stopped = false;
  let retry: NodeJS.Timeout | undefined;

  const runs = async (): Promise<void> => {
    do {
      again = false;
      try {
        await work();
      } catch (error) {
        if (stopped) break;
        onError(error);
        clearTimeout(retry);
        retry = setTimeout(() => void run(), RETRY_MS);
      }
    } while (again && !stopped);
    running = undefined;
  };
  const run = (): Promise<void> => {
    clearTimeout(retry);
    if (stopped) return Promise.resolve();
    again = true;
    running ??= runs();
    return running;
  };
  return {
    run,
    stop() {
      stopped = true;
      clearTimeout(retry);
    },
  };
}
