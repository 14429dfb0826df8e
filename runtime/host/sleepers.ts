import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { withRelease } from '../lowering/future-release.ts';

/** The timers of one inferlet. */
export class Sleepers {
  readonly #waiting = new Map<NodeJS.Timeout, (outcome: Outcome<undefined>) => void>();
  #stopped: HandlerError | null = null;

  /** Completes after `milliseconds`, or with the reason when the inferlet is stopped. */
  sleep(milliseconds: number): Promise<Outcome<undefined>> {
    const stopped = this.#stopped;
    if (stopped) return Promise.resolve(err(stopped));
    const { promise, resolve } = Promise.withResolvers<Outcome<undefined>>();
    const end = (outcome: Outcome<undefined>) => {
      clearTimeout(timer);
      this.#waiting.delete(timer);
      resolve(outcome);
    };
    // 2 ** 31 - 1 ms is the longest delay that a timer of Node takes.
    const timer = setTimeout(() => end(ok(undefined)), Math.min(milliseconds, 2 ** 31 - 1));
    this.#waiting.set(timer, end);
    return withRelease(promise, () => end(err(DROPPED)));
  }

  /** Number of running timers. Dropping a future ends its timer. */
  get size(): number {
    return this.#waiting.size;
  }

  stop(reason: HandlerError): void {
    this.#stopped ??= reason;
    for (const end of [...this.#waiting.values()]) end(err(reason));
  }
}

/** The outcome of a future that its guest dropped. */
export const DROPPED = handlerError('closed', 'the future was dropped');
