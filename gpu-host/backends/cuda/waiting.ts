/** A timer that is later than this shows that the process or the machine stood still. */
const STOOD_STILL_MS = 1000;

/** Bounds the waits for a card. */
export class Deadline {
  readonly #ms: number;
  readonly #onMissed: (text: string) => void;

  /** @param onMissed called with a text about work that is not done after `ms` milliseconds */
  constructor(ms: number, onMissed: (text: string) => void) {
    this.#ms = ms;
    this.#onMissed = onMissed;
  }

  /** Settles as `work` does. @param what names the work in the text for `onMissed` */
  async of<R>(work: Promise<R>, what: string): Promise<R> {
    let isPending = true;
    const fail = () => {
      if (isPending) this.#onMissed(`${what} has not ended for ${this.#ms / 1000} s: the card hangs`);
    };
    let timer: NodeJS.Timeout | undefined;
    const watch = () => {
      const dueMs = performance.now() + this.#ms;
      timer = setTimeout(() => {
        // If the whole machine stood still, so did the thread that waits for the card: the work gets its time again.
        if (performance.now() - dueMs > STOOD_STILL_MS) watch();
        // If this thread itself was late, the event loop reports finished work before it runs the immediate.
        else setImmediate(fail);
      }, this.#ms);
    };
    watch();
    try {
      return await work;
    } finally {
      isPending = false;
      clearTimeout(timer);
    }
  }
}

/** Lets callers wait for work that began before their calls. At most two waits exist: the running one and the next, which later callers share. */
export class SharedWait {
  readonly #begin: () => Promise<unknown>;
  #running: Promise<unknown> = Promise.resolve();
  #next: Promise<unknown> | undefined;

  /** @param begin begins a wait for all work that began before its call */
  constructor(begin: () => Promise<unknown>) {
    this.#begin = begin;
  }

  wait(): Promise<unknown> {
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      const begun = this.#begin();
      this.#running = begun.catch(() => undefined);
      return begun;
    });
    return this.#next;
  }
}
