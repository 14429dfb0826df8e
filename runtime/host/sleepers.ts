import { err, type HandlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';

/** The timers of one inferlet. */
export class Sleepers {
  readonly #waiting = new Map<NodeJS.Timeout, (outcome: Outcome<undefined>) => void>();
  #stopped: HandlerError | null = null;

  /** Completes after `milliseconds`, or with the reason when the inferlet is stopped. */
  sleep(milliseconds: number): Promise<Outcome<undefined>> {
    const stopped = this.#stopped;
    if (stopped) return Promise.resolve(err(stopped));
    return new Promise((resolve) => {
      const timer = setTimeout(
        () => {
          this.#waiting.delete(timer);
          resolve(ok(undefined));
        },
        Math.min(milliseconds, 2 ** 31 - 1),
      );
      this.#waiting.set(timer, resolve);
    });
  }

  stop(reason: HandlerError): void {
    this.#stopped ??= reason;
    for (const [timer, resolve] of this.#waiting) {
      clearTimeout(timer);
      resolve(err(reason));
    }
    this.#waiting.clear();
  }
}
