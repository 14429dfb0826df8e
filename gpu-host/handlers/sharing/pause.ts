/** Shortest wait that uses a timer. A shorter one takes a turn of the event loop, because timers are not precise enough. */
const SHORTEST_TIMER_MS = 2;

/** The engine's waits between steps. Each ends at its time, or when a frame or completion wakes the engine. */
export class Pause {
  #wake: (() => void) | undefined;
  #lingeredMs = 0;

  /** Ends the current wait. */
  wake(): void {
    this.#wake?.();
  }

  /** Waits up to `ms`, and at least until pending I/O was handled. */
  async wait(ms: number): Promise<void> {
    if (ms < SHORTEST_TIMER_MS) return nextTurn();
    await new Promise<void>((resolve) => {
      // The timer ends a millisecond early: turns of the event loop cover the rest.
      const timer = setTimeout(resolve, ms - 1);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = undefined;
  }

  /** Waits amid a batch, while the device is idle. @returns the time that it waited, ms */
  async linger(ms: number): Promise<number> {
    const startedMs = performance.now();
    await this.wait(ms);
    const waitedMs = performance.now() - startedMs;
    this.#lingeredMs += waitedMs;
    return waitedMs;
  }

  /** Milliseconds of `linger` since the last call of this method. */
  takeLingeredMs(): number {
    const ms = this.#lingeredMs;
    this.#lingeredMs = 0;
    return ms;
  }

  /** Waits until a frame or completion wakes the engine, at most until `end`. */
  async until(end: Promise<void>): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      void end.then(resolve);
    });
    this.#wake = undefined;
  }
}

/** Lets pending I/O be handled. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
