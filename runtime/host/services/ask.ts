import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { unexpected } from '#runtime/unexpected.ts';
import type { AttemptName } from '#scheduler/invocations/types.ts';
import type { InferletShare } from '#scheduler/policies/shares.ts';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { Fifo } from '../../channel/fifo.ts';
import type { Waits } from '../../lifecycle/waiting.ts';

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

/** Maximum calls of one inferlet under way at once. */
const MAX_CALLS = 1024;
/** Maximum bytes that these calls carry together: two files of the largest size. */
const MAX_BYTES = 32 * 2 ** 20;

/**
 * Counts the calls of one inferlet that this process holds in its memory, and the bytes that they carry. It holds calls to anything but a device,
 * calls that wait for a KV file to open, and runs that a quota caps or a grammar guides. A call counts until it settles, even when the inferlet
 * drops it or is stopped.
 */
export class Outgoing {
  readonly #tenantBytes: InferletShare;
  #calls = 0;
  #bytes = 0;

  /** @param tenantBytes counts the bytes of this inferlet within its tenant's limit */
  constructor(tenantBytes: InferletShare) {
    this.#tenantBytes = tenantBytes;
  }

  get calls(): number {
    return this.#calls;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The error when no call with this many bytes may be made now, or null. */
  refusal(bytes: number): HandlerError | null {
    if (this.#calls < MAX_CALLS && this.#bytes + bytes <= MAX_BYTES) {
      if (this.#tenantBytes.fits(bytes)) return null;
      const text =
        "the calls under way of all the tenant's inferlets have reached their limit of bytes; await some and call again";
      return handlerError('limit-exceeded', text);
    }
    const text = `${this.#calls} calls with ${this.#bytes} bytes are under way (the limits are ${MAX_CALLS} and ${MAX_BYTES}); await some and call again`;
    return handlerError('limit-exceeded', text);
  }

  /** Counts a call, even when there is no room. The caller must call `end`. */
  begin(bytes: number): void {
    this.#calls++;
    this.#bytes += bytes;
    this.#tenantBytes.add(bytes);
  }

  end(bytes: number): void {
    this.#calls--;
    this.#bytes -= bytes;
    this.#tenantBytes.add(-bytes);
  }

  /** Makes a call if there is room, and counts it until it settles. `call` must copy what it sends before it returns. */
  async during<T>(bytes: number, call: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const refused = this.refusal(bytes);
    if (refused) return err(refused);
    this.begin(bytes);
    try {
      return await call();
    } finally {
      this.end(bytes);
    }
  }
}

/** Maximum calls of one tenant in the store at once. The call of another tenant waits behind no more than these. */
const MAX_TENANT_CALLS = 16;
/** Maximum bytes that these calls carry together. */
const MAX_TENANT_BYTES = 2 ** 20;

interface Queue {
  calls: number;
  bytes: number;
  readonly waiting: Fifo<{ readonly bytes: number; readonly begin: () => void }>;
}

/**
 * Queues inferlets' calls of the platform's store, one queue per tenant. A tenant's flood waits here, and not in the store's single
 * connection, which serves the commands of all tenants in order.
 */
export class StoreQueues {
  readonly #queues = new Map<string, Queue>();

  /** Number of tenants with calls. */
  get tenants(): number {
    return this.#queues.size;
  }

  /** Makes a call as soon as there is room, in the order of the tenant's calls. A call larger than the byte limit goes alone. */
  async during<T>(tenant: string, bytes: number, call: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(tenant) ?? { calls: 0, bytes: 0, waiting: new Fifo() };
    this.#queues.set(tenant, queue);
    if (queue.waiting.first || !hasRoom(queue, bytes)) {
      await new Promise<void>((begin) => queue.waiting.push({ bytes, begin }));
    } else enter(queue, bytes);
    try {
      return await call();
    } finally {
      queue.calls--;
      queue.bytes -= bytes;
      for (let next = queue.waiting.first; next && hasRoom(queue, next.bytes); next = queue.waiting.first) {
        queue.waiting.shift();
        enter(queue, next.bytes);
        next.begin();
      }
      if (queue.calls === 0) this.#queues.delete(tenant);
    }
  }
}

const hasRoom = (queue: Queue, bytes: number): boolean =>
  queue.calls === 0 || (queue.calls < MAX_TENANT_CALLS && queue.bytes + bytes <= MAX_TENANT_BYTES);

function enter(queue: Queue, bytes: number): void {
  queue.calls++;
  queue.bytes += bytes;
}

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
