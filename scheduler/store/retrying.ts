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
  let isRequested = false;
  let isStopped = false;
  let retry: NodeJS.Timeout | undefined;

  const runRepeatedly = async (): Promise<void> => {
    do {
      isRequested = false;
      try {
        await work();
      } catch (error) {
        if (isStopped) break;
        onError(error);
        clearTimeout(retry);
        retry = setTimeout(() => void run(), RETRY_MS);
      }
    } while (isRequested && !isStopped);
    running = undefined;
  };
  const run = (): Promise<void> => {
    clearTimeout(retry);
    if (isStopped) return Promise.resolve();
    isRequested = true;
    running ??= runRepeatedly();
    return running;
  };
  return {
    run,
    stop() {
      isStopped = true;
      clearTimeout(retry);
    },
  };
}
