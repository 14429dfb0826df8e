import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Inferlet } from './inferlet.ts';

/**
 * Waits for something that is no device, in the inferlet's name: completes with the reason when the inferlet is stopped first, with an error
 * when the call throws, and never rejects. What the call does when nobody waits any more is its own matter.
 */
export function ask<T>(inferlet: Inferlet, call: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
  const { stopped, stopping, hooks } = inferlet;
  if (stopped) return Promise.resolve(err(stopped));
  return hooks.waits.during(
    new Promise((resolve) => {
      const stop = () => resolve(err(inferlet.stopped ?? ENDED));
      stopping.addEventListener('abort', stop, { once: true });
      call()
        .catch((error: unknown) => err(fromStore(error)))
        .then((outcome) => {
          stopping.removeEventListener('abort', stop);
          resolve(outcome);
        });
    }),
  );
}

/** What a failed call of the platform's store comes to for an inferlet. */
function fromStore(error: unknown): HandlerError {
  const { code, message } = StoreError.from(error);
  if (code === 'store-unavailable')
    return handlerError('unavailable', `the platform's store cannot be reached now: ${message}`);
  return handlerError('internal', message);
}

const ENDED = handlerError('terminated', 'the invocation has ended');
