import type { TenantLimit } from './calls.ts';
import { encodeBare, encodeOpenInferlet, encodeSetTenantLimit, encodeWords } from './encode-calls.ts';
import { err, type HandlerError, handlerError, type Outcome } from './errors.ts';
import { DEFAULT_MAX_PRIORITY, DEFAULT_TENANT, type InferletOptions } from './gpu-inferlet.ts';
import type { Link, LinkedInferlet, Pending } from './link.ts';
import type { DecodedResult, DeviceUsage, Termination } from './results.ts';
import { MAX_FRAME_BYTES, OP } from './wire.ts';

/** A link, or why there is none. */
export type LinkOrDown = Link | { readonly lost: HandlerError };

/** Older than any that was read. */
const UNKNOWN_LIMIT = { pages: null, readAt: 0 };
const CLOSE_DEADLINE_MS = 30_000;
/** Bytes of calls that may wait unsent; an inferlet that issues more without awaiting anything is flooding. */
const MAX_UNSENT_BYTES = 4 * MAX_FRAME_BYTES;

const UNREACHABLE = handlerError('unavailable', 'the GPU host cannot be reached');
const TOO_LARGE = handlerError('limit-exceeded', `the call is larger than ${MAX_FRAME_BYTES} bytes; split it`);

/**
 * Sends one inferlet's calls over a link and keeps those whose result is awaited, until the inferlet is closed, terminated or lost: then
 * all of them are answered with the reason, and so is every later one.
 */
export class Issuer implements LinkedInferlet {
  readonly handle: number;
  #link: Link | undefined;
  #options: InferletOptions;
  #pending = new Set<number>();
  /** Why nothing can be called any more: closed, terminated, lost, flooding. */
  #dead: HandlerError | undefined;
  /** Why there was no link to begin with. */
  #unreachable: HandlerError | undefined;
  #unsentBytes = 0;
  #unsentSince = 0;
  #issued = 0;
  #waiting = false;
  #closing: Promise<void> | undefined;
  #usage: DeviceUsage = { gpuUs: 0, pageMs: 0 };

  constructor(link: LinkOrDown, handle: number, options: InferletOptions) {
    this.handle = handle;
    this.#options = options;
    if ('writer' in link && !link.lost) {
      const { id: name, tenant = DEFAULT_TENANT, maxPages, maxPriority = DEFAULT_MAX_PRIORITY, arrival } = options;
      this.#link = link;
      link.inferlets.set(handle, this);
      const { family = '', epoch: familyEpoch = 0, maxPages: familyPages = 0 } = options.sharedPages ?? {};
      const { epoch = 0, tenantPages = UNKNOWN_LIMIT, functionName = '', traceparent = '' } = options;
      encodeOpenInferlet(link.writer, handle, {
        ...{ name, epoch, tenant, maxPages, maxPriority, arrival, family, familyEpoch, familyPages },
        ...{ tenantPages, functionName, traceparent },
      });
      link.scheduleFlush();
    } else {
      this.#dead = link.lost;
      this.#unreachable = link.lost;
    }
  }

  get pending(): number {
    return this.#pending.size;
  }

  /** What the host has said so far; the last of it comes with the end. */
  get usage(): DeviceUsage {
    return this.#usage;
  }

  get issued(): number {
    return this.#issued;
  }

  /** Why nothing can be called any more, as far as is known without a look at the link. */
  get dead(): HandlerError | undefined {
    return this.#dead;
  }

  /** Why its host cannot be reached any more, if so: whatever the host held for it is gone. */
  get lost(): HandlerError | undefined {
    return this.#link ? this.#link.lost : this.#unreachable;
  }

  /** Why nothing can be called now, if so. */
  refusal(): HandlerError | undefined {
    return this.#dead ?? (this.#writable() ? undefined : this.#lostError());
  }

  /** Sends a call without a result. What cannot be sent is the matter of later calls, but for one that is too large. */
  send(encode: (link: Link) => boolean): HandlerError | undefined {
    const link = this.#awake();
    return !link || this.#sent(link, encode(link)) ? undefined : TOO_LARGE;
  }

  /** Sends a call and resolves with what `read` makes of its result; a result that is not of its kind is an `internal` error. */
  ask<T>(
    read: (result: DecodedResult) => Outcome<T> | undefined,
    encode: (link: Link, id: number) => boolean,
  ): Promise<Outcome<T>> {
    const link = this.#awake();
    if (!link) return Promise.resolve(err(this.#lostError()));
    const id = link.nextId();
    if (!this.#sent(link, encode(link, id))) return Promise.resolve(err(TOO_LARGE));
    if (this.#dead) return Promise.resolve(err(this.#dead));
    return new Promise((resolve) => {
      const call: Pending = {
        settle: (result) => {
          this.#pending.delete(id);
          resolve(read(result) ?? resultError(result));
          return true;
        },
        fail: (error) => {
          this.#pending.delete(id);
          resolve(err(error));
        },
      };
      link.pending.set(id, call);
      this.#pending.add(id);
    });
  }

  /** Sends a call with many results, which `make` takes; `make` is given how to say that the last one has come. */
  stream<T extends Pending>(
    encode: (link: Link, id: number) => boolean,
    make: (id: number, over: () => void) => T,
  ): T | HandlerError {
    const link = this.#awake();
    if (!link) return this.#lostError();
    const id = link.nextId();
    if (!this.#sent(link, encode(link, id))) return TOO_LARGE;
    if (this.#dead) return this.#dead;
    const call = make(id, () => this.#pending.delete(id));
    link.pending.set(id, call);
    this.#pending.add(id);
    return call;
  }

  setWaiting(waiting: boolean): void {
    if (waiting === this.#waiting) return;
    const link = this.#writable();
    if (link) this.#tellWaiting(link, waiting);
  }

  /** No call of the inferlet's: it waits on if it does. */
  setTenantLimit(limit: TenantLimit): void {
    const link = this.#writable();
    if (!link) return;
    encodeSetTenantLimit(link.writer, this.handle, limit);
    link.scheduleFlush();
  }

  terminated(termination: Termination): void {
    if (this.#dead) return;
    this.#dead = handlerError('terminated', termination.cause);
    if (this.#link) this.#failPending(this.#link, this.#dead);
    this.#options.onTerminated?.(termination);
  }

  used(usage: DeviceUsage): void {
    this.#usage = usage;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const link = this.#link;
    const alreadyDead = this.#dead;
    this.#dead ??= handlerError('cancelled', 'the inferlet has ended');
    if (!link || link.lost) return;
    this.#failPending(link, alreadyDead ?? handlerError('cancelled', 'the inferlet ended before this call'));
    const { promise, resolve } = Promise.withResolvers<void>();
    const id = link.nextId();
    link.pending.set(id, {
      settle: () => {
        resolve();
        return true;
      },
      fail: () => resolve(),
    });
    encodeBare(link.writer, OP.closeInferlet, this.handle, 0, id);
    link.scheduleFlush();
    const timer = setTimeout(resolve, CLOSE_DEADLINE_MS);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      link.pending.delete(id);
      // The host has said before that what it used in the end.
      link.inferlets.delete(this.handle);
      this.#link = undefined;
    }
  }

  #failPending(link: Link, error: HandlerError): void {
    for (const id of [...this.#pending]) {
      const call = link.pending.get(id);
      link.pending.delete(id);
      call?.fail(error);
    }
    this.#pending.clear();
  }

  #sent(link: Link, fits: boolean): boolean {
    link.scheduleFlush();
    this.#issued++;
    this.#unsentBytes += link.writer.entryWords * 4;
    if (this.#unsentBytes > MAX_UNSENT_BYTES) this.#flood();
    return fits;
  }

  /** Its calls are lost from here on; the host is told to release what it holds. */
  #flood(): void {
    this.#dead ??= handlerError(
      'limit-exceeded',
      `more than ${MAX_UNSENT_BYTES} bytes of calls were issued without awaiting one`,
    );
    void this.close();
  }

  #lostError(): HandlerError {
    return this.#dead ?? this.#link?.lost ?? UNREACHABLE;
  }

  /** The link for a call; whoever calls waits no longer. */
  #awake(): Link | undefined {
    const link = this.#writable();
    if (link && this.#waiting) this.#tellWaiting(link, false);
    return link;
  }

  #tellWaiting(link: Link, waiting: boolean): void {
    this.#waiting = waiting;
    encodeWords(link.writer, OP.setWaiting, this.handle, 0, 0, waiting ? 1 : 0);
    link.scheduleFlush();
  }

  #writable(): Link | undefined {
    const link = this.#link;
    if (this.#dead || !link) return undefined;
    if (link.lost) {
      this.#dead = link.lost;
      return undefined;
    }
    if (this.#unsentSince !== link.drains) {
      this.#unsentSince = link.drains;
      this.#unsentBytes = 0;
    }
    return link;
  }
}

function resultError(result: DecodedResult): { readonly tag: 'err'; readonly val: HandlerError } {
  if (result.kind === 'error') return err(result.error);
  return err(handlerError('internal', `the GPU host answered with a result of kind ${result.kind}`));
}
