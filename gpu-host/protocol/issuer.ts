import type { TenantLimit } from './calls.ts';
import { err, type HandlerError, handlerError, type Outcome } from './errors.ts';
import { PageLists } from './fields.ts';
import { FrameWriter } from './frames.ts';
import type { Link, LinkMember, Pending } from './link.ts';
import { encodeCall, type Operation } from './operations.ts';
import type { SharedPages } from './page-budget.ts';
import type { Answer, DecodedResult, DeviceUsage, Termination } from './results.ts';
import { FRAME, MAX_ADDRESSES, MAX_FRAME_BYTES, MAX_LIST } from './wire.ts';

/** A link, or the reason why there is none. */
export type LinkOrDown = Link | { readonly lost: HandlerError };

/** The tenant's limit while it is unknown. It is older than every limit that was read. */
const UNKNOWN_LIMIT = { pages: null, readAt: 0 };
const CLOSE_DEADLINE_MS = 30_000;
/** Maximum bytes of unsent calls; an inferlet that issues more without awaiting anything is flooding. */
const MAX_UNSENT_BYTES = 4 * MAX_FRAME_BYTES;

const UNREACHABLE = handlerError('unavailable', 'the GPU host cannot be reached');
const NOT_SENT = handlerError('closed', 'the inferlet gave up the call before it was sent');
export const TOO_LARGE = handlerError(
  'limit-exceeded',
  `the call has more than ${MAX_FRAME_BYTES} bytes, or a list of more than ${MAX_LIST} items or ${MAX_ADDRESSES} addresses; split it`,
);

/** A call that waits for `Issuer.release`. */
interface HeldCall {
  readonly queue: number;
  readonly id: number;
  /** The call's encoded fields, or, for a call whose fields are known only when it is sent, the call; null when it is not sent at all. */
  readonly call: Uint32Array | (() => Operation | null);
  /** True when `id` names this call; false when it names an earlier call, or none. */
  readonly isAsked: boolean;
}

/** The calls that an issuer holds, in order. */
class HeldCalls {
  readonly calls: HeldCall[] = [];
  bytes = 0;
  /** Encodes held calls: their lists may be views of the guest's memory, which changes before they are sent. */
  readonly writer = new FrameWriter();
  readonly pageLists = new PageLists();
}

/**
 * Sends one inferlet's calls over a link and keeps the calls whose result is awaited. Once the inferlet is closed, terminated or lost, the kept
 * calls and every later call are answered with the reason.
 */
export class Issuer implements LinkMember {
  readonly handle: number;
  #link: Link | undefined;
  #options: InferletOptions;
  #pending = new Set<number>();
  /** Error of every later call: closed, terminated, lost, flooding. */
  #fatalError: HandlerError | undefined;
  /** Error when there was no link to begin with. */
  #unreachable: HandlerError | undefined;
  /** Bytes of calls since the link's last drain. */
  #unsentBytes = 0;
  /** The link's `drains` when `#unsentBytes` was last reset. */
  #countedDrains = 0;
  #issuedCalls = 0;
  #isWaiting = false;
  /** True while the host holds calls of the inferlet. */
  #isHeld = false;
  /** Calls that wait for `release`; null while calls are sent at once. */
  #heldCalls: HeldCalls | null = null;
  #closing: Promise<void> | undefined;
  #usage: DeviceUsage = { gpuUs: 0, pageMs: 0, encodedTokens: 0 };

  constructor(link: LinkOrDown, handle: number, options: InferletOptions) {
    this.handle = handle;
    this.#options = options;
    if ('writer' in link && !link.lost) {
      const { id: name, tenant = DEFAULT_TENANT, maxPages, maxPriority = DEFAULT_MAX_PRIORITY, arrival } = options;
      this.#link = link;
      link.inferlets.set(handle, this);
      const { family = '', epoch: familyEpoch = 0, maxPages: familyPages = 0 } = options.sharedPages ?? {};
      const { firstTokenMs = 0, perTokenMs = 0 } = options.latency ?? {};
      const { epoch = 0, tenantPages = UNKNOWN_LIMIT, functionName = '', traceparent = '' } = options;
      this.#put(link, 0, 0, {
        op: 'open-inferlet',
        name,
        epoch,
        tenant,
        maxPages,
        maxPriority,
        arrival,
        family,
        familyEpoch,
        familyPages,
        tenantPages,
        functionName,
        traceparent,
        firstTokenMs,
        perTokenMs,
      });
      link.scheduleFlush();
    } else {
      this.#fatalError = link.lost;
      this.#unreachable = link.lost;
    }
  }

  get pending(): number {
    return this.#pending.size;
  }

  /** Usage reported so far; the last report comes at the end. */
  get usage(): DeviceUsage {
    return this.#usage;
  }

  get issued(): number {
    return this.#issuedCalls;
  }

  /** Error of every later call, if it is known already. Does not check whether the link has been lost. */
  get dead(): HandlerError | undefined {
    return this.#fatalError;
  }

  /** Error when the host cannot be reached any more: everything that it held for the inferlet is gone. */
  get lost(): HandlerError | undefined {
    return this.#link ? this.#link.lost : this.#unreachable;
  }

  /** Error of a call made now; undefined when the call can be sent. */
  refusal(): HandlerError | undefined {
    return this.#fatalError ?? (this.#writableLink() ? undefined : this.#lostError());
  }

  /**
   * Sends a call without a result. Returns an error only for a call that is too large; other failures surface in later calls.
   *
   * @param id names the earlier call that this one is about, such as a run; 0 for none
   */
  send(queue: number, operation: Operation, id = 0): HandlerError | undefined {
    const link = this.#linkForCall();
    if (!link) return undefined;
    return this.#trySend(link, queue, id, operation, false) ? undefined : TOO_LARGE;
  }

  /**
   * Sends a call and resolves to its result, which `read` decodes; a result of another kind becomes an `internal` error.
   *
   * @param onIssued called with the id of a call that was sent
   */
  ask<T>(
    queue: number,
    operation: Operation,
    read: Answer<T, never>['read'],
    onIssued?: (id: number) => void,
  ): Promise<Outcome<T>> {
    const link = this.#linkForCall();
    if (!link) return Promise.resolve(err(this.#lostError()));
    const id = link.nextId();
    if (!this.#trySend(link, queue, id, operation, true)) return Promise.resolve(err(TOO_LARGE));
    if (this.#fatalError) return Promise.resolve(err(this.#fatalError));
    onIssued?.(id);
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

  /**
   * Sends a call with many results. The object that `make` returns receives them, and calls `over` at the last one.
   *
   * @param whenSent the call to send in place of `operation`, with other numbers, or null to send none; asked for when a held call is sent
   */
  stream<T extends Pending>(
    queue: number,
    operation: Operation,
    make: (id: number, over: () => void) => T,
    whenSent?: () => Operation | null,
  ): T | HandlerError {
    const link = this.#linkForCall();
    if (!link) return this.#lostError();
    const id = link.nextId();
    if (!this.#trySend(link, queue, id, operation, true, whenSent)) return TOO_LARGE;
    if (this.#fatalError) return this.#fatalError;
    const call = make(id, () => this.#pending.delete(id));
    link.pending.set(id, call);
    this.#pending.add(id);
    return call;
  }

  /** Holds all later calls back, in their order, until `release` or `refuseHeld`. */
  hold(): void {
    this.#heldCalls ??= new HeldCalls();
  }

  /** Sends the held calls. */
  release(): void {
    const held = this.#heldCalls;
    this.#heldCalls = null;
    const link = this.#writableLink();
    if (!held || !link) return;
    for (const { queue, id, call } of held.calls) {
      if (typeof call === 'function') {
        const operation = call();
        if (operation === null) {
          this.#fail(id, NOT_SENT);
          continue;
        }
        this.#put(link, queue, id, operation);
      } else {
        link.writer.putEntry(FRAME.calls, call);
        // The entry has its page lists whole, so the host's last list of the queue is now another one.
        link.pageLists.of(this.handle, queue).forget();
      }
      this.#unsentBytes += link.writer.entryWords * 4;
    }
    link.scheduleFlush();
  }

  /** Answers the held calls with an error, without sending them. Returns the queues of those without a result. */
  refuseHeld(error: HandlerError): number[] {
    const held = this.#heldCalls;
    this.#heldCalls = null;
    const unanswered: number[] = [];
    for (const { queue, id, isAsked } of held?.calls ?? []) {
      if (isAsked) this.#fail(id, error);
      else unanswered.push(queue);
    }
    return unanswered;
  }

  /** Answers a call that is not sent. */
  #fail(id: number, error: HandlerError): void {
    const pending = this.#link?.pending.get(id);
    this.#link?.pending.delete(id);
    pending?.fail(error);
  }

  setWaiting(waiting: boolean): void {
    if (waiting === this.#isWaiting) return;
    const link = this.#writableLink();
    if (link) this.#tellWaiting(link, waiting);
  }

  /** Sends the tenant's limit. This is no call of the inferlet, so that a waiting inferlet goes on waiting. */
  setTenantLimit(limit: TenantLimit): void {
    const link = this.#writableLink();
    if (!link) return;
    this.#put(link, 0, 0, { op: 'set-tenant-limit', tenantPages: limit });
    link.scheduleFlush();
  }

  terminated(termination: Termination): void {
    if (this.#fatalError) return;
    this.#fatalError = handlerError('terminated', termination.cause);
    this.#setHeld(false);
    if (this.#link) this.#failPending(this.#link, this.#fatalError);
    this.#options.onTerminated?.(termination);
  }

  used(usage: DeviceUsage): void {
    const newTokens = usage.encodedTokens - this.#usage.encodedTokens;
    this.#usage = usage;
    if (newTokens > 0) this.#options.onEncoded?.(newTokens);
  }

  held(isHeld: boolean): void {
    if (!this.#fatalError || !isHeld) this.#setHeld(isHeld);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const link = this.#link;
    const alreadyDead = this.#fatalError;
    this.#fatalError ??= handlerError('cancelled', 'the inferlet has ended');
    this.#setHeld(false);
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
    this.#put(link, 0, id, { op: 'close-inferlet' });
    link.scheduleFlush();
    const timer = setTimeout(resolve, CLOSE_DEADLINE_MS);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      link.pending.delete(id);
      // The host reports the final usage before it answers the close.
      link.inferlets.delete(this.handle);
      this.#link = undefined;
    }
  }

  #setHeld(isHeld: boolean): void {
    if (isHeld === this.#isHeld) return;
    this.#isHeld = isHeld;
    this.#options.onHeld?.(isHeld);
  }

  #failPending(link: Link, error: HandlerError): void {
    for (const id of [...this.#pending]) {
      const call = link.pending.get(id);
      link.pending.delete(id);
      call?.fail(error);
    }
    this.#pending.clear();
  }

  #put(link: Link, queue: number, id: number, operation: Operation): boolean {
    return encodeCall(link.writer, link.pageLists, { inferlet: this.handle, queue, id }, operation);
  }

  #trySend(
    link: Link,
    queue: number,
    id: number,
    operation: Operation,
    isAsked: boolean,
    whenSent?: () => Operation | null,
  ): boolean {
    this.#issuedCalls++;
    const held = this.#heldCalls;
    const fits = held
      ? this.#keep(held, link, { queue, id, isAsked }, operation, whenSent)
      : this.#put(link, queue, id, operation);
    if (!held) {
      link.scheduleFlush();
      this.#unsentBytes += link.writer.entryWords * 4;
    }
    if (this.#unsentBytes + (held?.bytes ?? 0) > MAX_UNSENT_BYTES) this.#flood();
    return fits;
  }

  /** Encodes a call, and holds it; false when it is too large. */
  #keep(
    held: HeldCalls,
    link: Link,
    header: Omit<HeldCall, 'call'>,
    operation: Operation,
    whenSent: (() => Operation | null) | undefined,
  ): boolean {
    const { queue, id } = header;
    const { calls, writer, pageLists } = held;
    writer.version = link.version;
    // A forgotten list is encoded whole.
    pageLists.of(this.handle, queue).forget();
    if (!encodeCall(writer, pageLists, { inferlet: this.handle, queue, id }, operation)) return false;
    const words = writer.takeEntry();
    held.bytes += words.byteLength;
    calls.push({ ...header, call: whenSent ?? words });
    return true;
  }

  /** Fails all later calls and lets the host release what the inferlet holds. */
  #flood(): void {
    this.#fatalError ??= handlerError(
      'limit-exceeded',
      `more than ${MAX_UNSENT_BYTES} bytes of calls were issued without awaiting one`,
    );
    void this.close();
  }

  #lostError(): HandlerError {
    return this.#fatalError ?? this.#link?.lost ?? UNREACHABLE;
  }

  /** The link for a call. A call ends the inferlet's wait. */
  #linkForCall(): Link | undefined {
    const link = this.#writableLink();
    if (link && this.#isWaiting) this.#tellWaiting(link, false);
    return link;
  }

  #tellWaiting(link: Link, waiting: boolean): void {
    this.#isWaiting = waiting;
    this.#put(link, 0, 0, { op: 'set-waiting', waiting });
    link.scheduleFlush();
  }

  #writableLink(): Link | undefined {
    const link = this.#link;
    if (this.#fatalError || !link) return undefined;
    if (link.lost) {
      this.#fatalError = link.lost;
      return undefined;
    }
    if (this.#countedDrains !== link.drains) {
      this.#countedDrains = link.drains;
      this.#unsentBytes = 0;
    }
    return link;
  }
}

function resultError(result: DecodedResult): { readonly tag: 'err'; readonly val: HandlerError } {
  if (result.kind === 'error') return err(result.error);
  return err(handlerError('internal', `the GPU host answered with a result of kind ${result.kind}`));
}

/** The priorities of a queue are clamped to ± this bound, unless the options give another. */
export const DEFAULT_MAX_PRIORITY = 10;
/** Tenant of an inferlet that names none. */
export const DEFAULT_TENANT = 'default';

export interface InferletOptions {
  /** The invocation's id. */
  readonly id: string;
  /**
   * Attempt of the invocation, a whole number up to 2^53; 0 by default. When a newer attempt opens an inferlet on the host, the host ends the
   * inferlets of older attempts, and refuses to open further ones for those attempts.
   */
  readonly epoch?: number;
  /** Tenant of the inferlet, `DEFAULT_TENANT` by default. The inferlet sees the tenant's exports, files and cached prefixes. */
  readonly tenant?: string;
  /** Maximum pages that the inferlet may hold, per model. */
  readonly maxPages: number;
  /** Budget of pages that the inferlet shares with others. */
  readonly sharedPages?: SharedPages;
  /** Priorities of the queues are clamped to ±`maxPriority`: `DEFAULT_MAX_PRIORITY` by default. */
  readonly maxPriority?: number;
  /** Latency targets that the platform granted to the invocation, each at least 1 ms; without them its calls have no deadline. */
  readonly latency?: { readonly firstTokenMs: number; readonly perTokenMs: number };
  /** Order of arrival, such as milliseconds since the Unix epoch: when memory runs out, the inferlet with the largest number gives way first. */
  readonly arrival: number;
  /** Maximum pages of the tenant on the host; without it there is no limit, unless another inferlet of the tenant brings one. */
  readonly tenantPages?: TenantLimit;
  /** Name of the function that runs. If an inferlet of the same tenant is ended to make room for this one, its error has this name. */
  readonly functionName?: string;
  /** W3C trace context, when the inferlet is traced. */
  readonly traceparent?: string;
  /** Called with the tokens that the host's encoders have computed for the inferlet since the last call, until its close has ended. */
  readonly onEncoded?: (tokens: number) => void;
  /** Called once when the host has taken the inferlet's memory; its pending calls have been answered `terminated` by then. */
  readonly onTerminated?: (termination: Termination) => void;
  /**
   * Called with `true` when the host begins to hold back calls of the inferlet, because it preempted the inferlet's family (the root invocation
   * and its children) or brings pages back from disk. Called with `false` when the host holds none of its calls any more, when the inferlet has
   * ended, or when the host is lost. The values alternate, `true` first.
   */
  readonly onHeld?: (isHeld: boolean) => void;
}
