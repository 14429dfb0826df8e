/** A flag that one task waits for and others set. It remembers one `set` while no task waits. */
export class Wakeup {
  #isSet = false;
  #wake: (() => void) | undefined;

  set(): void {
    this.#isSet = true;
    this.#wake?.();
  }

  /** Waits until the flag is set (and clears it), the time is over, or the signal aborts. Resolves to true if the flag was set. */
  async wait(timeoutMs: number, signal?: AbortSignal): Promise<boolean> {
    if (!this.#isSet && !signal?.aborted) {
      let timer: NodeJS.Timeout | undefined;
      let stop: (() => void) | undefined;
      try {
        await new Promise<void>((resolve) => {
          stop = () => resolve();
          this.#wake = stop;
          timer = setTimeout(stop, timeoutMs);
          signal?.addEventListener('abort', stop, { once: true });
        });
      } finally {
        clearTimeout(timer);
        if (stop) signal?.removeEventListener('abort', stop);
        this.#wake = undefined;
      }
    }
    const wasSet = this.#isSet;
    this.#isSet = false;
    return wasSet;
  }
}
