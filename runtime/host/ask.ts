import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { AttemptName } from '#scheduler/invocations/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Inferlet } from './inferlet.ts';

/**
 * Waits for something that is no device, in the inferlet's name: completes with the reason when the inferlet is stopped first, with an error
 * when the call throws, and never rejects. The call counts as under way until it settles itself, whether anybody still waits or not.
 *
 * @param bytes what the call carries; it makes its copies before it returns, and is not made when too much is under way
 */
export function ask<T>(inferlet: Inferlet, call: () => Promise<Outcome<T>>, bytes = 0): Promise<Outcome<T>> {
  const { stopped, outgoing, interruptions, hooks } = inferlet;
  if (stopped) return Promise.resolve(err(stopped));
  const work = outgoing.during(bytes, () => call().catch((error: unknown) => err(fromStore(error))));
  return hooks.waits.during(interruptions.until(work));
}

/**
 * `ask` for a short call of the platform's store: it is made when its tenant's line has room.
 *
 * @param call what it sends must not be a view of the guest's memory: it may be made later
 */
export function askStore<T>(inferlet: Inferlet, call: () => Promise<Outcome<T>>, bytes = 0): Promise<Outcome<T>> {
  const { description, services } = inferlet;
  return ask(inferlet, () => services.storeLines.during(description.tenant, bytes, call), bytes);
}

/** In whose name the inferlet stores and sends; undefined when no attempt is known of it. */
export function attemptOf({ description: { id, epoch } }: Inferlet): AttemptName | undefined {
  return epoch === undefined ? undefined : { id, epoch };
}

/** What a failed call of the platform's store comes to for an inferlet. */
export function fromStore(error: unknown): HandlerError {
  const { code, message } = StoreError.from(error);
  if (code === 'store-unavailable')
    return handlerError('unavailable', `the platform's store cannot be reached now: ${message}`);
  if (code === 'stale-attempt') return handlerError('closed', message);
  if (code === 'quota-exceeded') return handlerError('limit-exceeded', message);
  return handlerError('internal', message);
}
