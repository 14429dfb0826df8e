/**
 * Maximum file operations at once. An operation that hangs, as on a network file system whose server is away, occupies
 * one of the process's few threads for files.
 */
const MAX_RUNNING = 2;
/** Longest file operation, its wait for a turn included. */
const OPERATION_MS = 30_000;

/** Bounds the file operations under way, and the wait for each. */
export class IoTurns {
  readonly #waitMs: number;
  /** Functions that begin the waiting operations, in order. */
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(waitMs = OPERATION_MS) {
    this.#waitMs = waitMs;
  }

  /** Operations under way, those that take too long included. */
  get running(): number {
    return this.#running;
  }

  /**
   * Makes an operation when its turn comes.
   * @param undo releases the result of an operation that ended too late
   * @throws Error when the wait and the operation together take too long; errors of `work`
   */
  async during<T>(work: () => Promise<T>, undo: (made: T) => void = () => undefined): Promise<T> {
    const turn = Promise.withResolvers<void>();
    const timeout = Promise.withResolvers<never>();
    // When the work ends just as the time runs out, nothing else handles this rejection.
    timeout.promise.catch(() => undefined);
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#waiting.delete(turn.resolve);
      timeout.reject(this.#lateness());
    }, this.#waitMs);
    try {
      if (this.#running >= MAX_RUNNING) {
        this.#waiting.add(turn.resolve);
        await Promise.race([turn.promise, timeout.promise]);
      } else this.#running++;
      const working = work().finally(() => this.#leave());
      working.then(
        (made) => isLate && undo(made),
        () => undefined,
      );
      return await Promise.race([working, timeout.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Makes an operation that releases something, such as a handle. The operation runs even if its turn comes after the caller's wait.
   * @throws Error when the wait and the operation together take too long; errors of `work`
   */
  async release(work: () => Promise<void>): Promise<void> {
    const turn = Promise.withResolvers<void>();
    if (this.#running >= MAX_RUNNING) this.#waiting.add(turn.resolve);
    else {
      this.#running++;
      turn.resolve();
    }
    const released = turn.promise.then(work).finally(() => this.#leave());
    const timeout = Promise.withResolvers<never>();
    const timer = setTimeout(() => timeout.reject(this.#lateness()), this.#waitMs);
    try {
      await Promise.race([released, timeout.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  #lateness(): Error {
    return new Error(`no answer within ${this.#waitMs / 1000} s`);
  }

  #leave(): void {
    const [beginNext] = this.#waiting;
    if (beginNext) {
      this.#waiting.delete(beginNext);
      beginNext();
    } else this.#running--;
  }
}

/** Lets this process end while operations hang. Otherwise its exit would wait for their threads until the directory answers. */
export function exitWithoutWaitingFor(turns: IoTurns): void {
  process.once('exit', () => turns.running > 0 && process.kill(process.pid, 'SIGKILL'));
}
