import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';

/** The waits of an inferlet that end when it is stopped. */
export class Interruptions {
  readonly #waiting = new Set<(reason: HandlerError) => void>();
  #stopped: HandlerError | null = null;

  /** Completes as `work` does, or with the reason when the inferlet is stopped. A rejection of `work`, a fault of the platform, becomes an error. */
  until<T>(work: Promise<Outcome<T>>): Promise<Outcome<T>> {
    const stopped = this.#stopped;
    if (stopped) {
      work.catch(() => undefined);
      return Promise.resolve(err(stopped));
    }
    return new Promise((resolve) => {
      const settle = (outcome: Outcome<T>) => {
        this.#waiting.delete(interrupt);
        resolve(outcome);
      };
      const interrupt = (reason: HandlerError) => settle(err(reason));
      this.#waiting.add(interrupt);
      work.then(settle, (error: unknown) => settle(err(fault(error))));
    });
  }

  stop(reason: HandlerError): void {
    if (this.#stopped) return;
    this.#stopped = reason;
    for (const interrupt of [...this.#waiting]) interrupt(reason);
  }
}

function fault(error: unknown): HandlerError {
  return handlerError('internal', unexpected(error));
}
