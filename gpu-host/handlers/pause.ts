/** Waits shorter than this, in milliseconds, are spent in turns of the event loop: a timer is no finer. */
const SHORTEST_TIMER_MS = 2;

/** The engine's waits between batches: each ends at its time, or when something has come. */
export class Pause {
  #wake: (() => void) | undefined;

  /** Ends the wait that is going on. */
  wake(): void {
    this.#wake?.();
  }

  /** Waits up to `ms`, and at least until I/O that has come was handled. */
  async wait(ms: number): Promise<void> {
    if (ms < SHORTEST_TIMER_MS) return nextTurn();
    await new Promise<void>((resolve) => {
      // A millisecond early: the rest is spent in turns.
      const timer = setTimeout(resolve, ms - 1);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }
}

/** Lets I/O that has come be handled. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
