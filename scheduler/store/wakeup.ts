/** A flag that one task waits for and others set. Setting it while nobody waits is remembered once. */
export class Wakeup {
  #set = false;
  #wake: (() => void) | undefined;

  set(): void {
    this.#set = true;
    this.#wake?.();
  }

  /** Resolves when the flag is set (and clears it), when the time is over, or when the signal aborts. */
  async wait(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    if (!this.#set && !signal?.aborted) {
      let timer: NodeJS.Timeout | undefined;
      let stop: (() => void) | undefined;
      try {
        await new Promise<void>((resolve) => {
          stop = resolve;
          this.#wake = resolve;
          timer = setTimeout(resolve, timeoutMs);
          signal?.addEventListener('abort', resolve as () => void, { once: true });
        });
      } finally {
        clearTimeout(timer);
        if (stop) signal?.removeEventListener('abort', stop);
        this.#wake = undefined;
      }
    }
    this.#set = false;
  }
}
