import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { AttemptName } from '#scheduler/invocations/types.ts';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import type { Waits } from '../lifecycle/waiting.ts';
import type { Interruptions } from './interruptions.ts';
import type { Outgoing } from './outgoing.ts';
import type { StoreQueues } from './store-queues.ts';

/** The part of an inferlet that a call needs. */
export interface Caller {
  /** The reason to stop, or null. */
  readonly stopped: HandlerError | null;
  readonly outgoing: Outgoing;
  readonly interruptions: Interruptions;
  readonly hooks: { readonly waits: Waits };
}

/** The part of an inferlet that a call of the store needs. */
export interface StoreCaller extends Caller {
  readonly description: { readonly tenant: string };
  readonly services: { readonly storeQueues: StoreQueues };
}

/**
 * Makes a call of an inferlet to anything but a device. The promise never rejects: it completes with the reason when the inferlet is stopped,
 * and with an error when the call throws. The call counts as under way until it settles, even when the inferlet stops waiting.
 *
 * @param call must copy the bytes that it carries before it returns
 * @param bytes number of bytes that the call carries. When too many bytes are under way, the call is refused.
 */
export function ask<T>(inferlet: Caller, call: () => Promise<Outcome<T>>, bytes = 0): Promise<Outcome<T>> {
  const { stopped, outgoing, interruptions, hooks } = inferlet;
  if (stopped) return Promise.resolve(err(stopped));
  const work = outgoing.during(bytes, () => call().catch((error: unknown) => err(fromStore(error))));
  return hooks.waits.during(interruptions.until(work));
}

/**
 * Like `ask`, for a short call of the platform's store. The call is made once the tenant's queue has room.
 *
 * @param call must not send a view of the guest's memory: the call may be made later
 */
export function askStore<T>(inferlet: StoreCaller, call: () => Promise<Outcome<T>>, bytes = 0): Promise<Outcome<T>> {
  const { description, services } = inferlet;
  return ask(inferlet, () => services.storeQueues.during(description.tenant, bytes, call), bytes);
}

/** The attempt that the inferlet's writes are attributed to; undefined for an inferlet without an attempt. */
export function attemptOf({
  description: { id, epoch },
}: {
  readonly description: { readonly id: string; readonly epoch?: number };
}): AttemptName | undefined {
  return epoch === undefined ? undefined : { id, epoch };
}

/** Converts an error of the platform's store into an error for the inferlet, without paths of the host. */
export function fromStore(error: unknown): HandlerError {
  const stored = StoreError.from(error);
  const { code } = stored;
  const message = textForTenant(stored);
  if (code === 'store-unavailable') {
    const isRefusal = stored.full || stored.diskFault !== undefined;
    return handlerError('unavailable', isRefusal ? message : `the platform's store cannot be reached now: ${message}`);
  }
  if (code === 'stale-attempt') return handlerError('closed', message);
  if (code === 'quota-exceeded') return handlerError('limit-exceeded', message);
  return handlerError('internal', unexpected(error));
}
