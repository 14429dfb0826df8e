import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { InferletShare, Shares } from '#scheduler/policies/shares.ts';
import { type Release, withRelease } from '../../lowering/future-release.ts';
import type { Caller } from '../services/ask.ts';

/** A resource that an inferlet holds in this process until the inferlet drops it or ends. */
export interface Droppable {
  drop(): void;
}

/** A wait that ends when it is dropped. */
export class DroppableWait implements Droppable {
  readonly #controller = new AbortController();

  /** Aborts when the wait is dropped. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  drop(): void {
    this.#controller.abort();
  }
}

/** Resources of one kind that an inferlet holds, up to a bound. */
export class Holdings {
  readonly #max: number;
  readonly #noun: string;
  readonly #resources = new Set<Droppable>();

  /** @param noun plural, for the error's text */
  constructor(max: number, noun: string) {
    this.#max = max;
    this.#noun = noun;
  }

  get size(): number {
    return this.#resources.size;
  }

  /** Keeps a resource. Returns an error when the bound is reached; the resource must then refuse every call. */
  take(resource: Droppable): HandlerError | null {
    if (this.#resources.size >= this.#max) {
      return handlerError(
        'limit-exceeded',
        `${this.#max} ${this.#noun} are held, the most at once; drop what is not needed`,
      );
    }
    this.#resources.add(resource);
    return null;
  }

  /** Stops counting a resource; harmless for a resource that was not kept. */
  give(resource: Droppable): void {
    this.#resources.delete(resource);
  }

  dropAll(): void {
    for (const resource of [...this.#resources]) resource.drop();
    this.#resources.clear();
  }
}

/** Maximum bytes of results that wait for an inferlet to read them: two files of the largest size. */
const MAX_BYTES = 32 * 2 ** 20;

/** Counts one result's bytes until the inferlet has read the result, or has dropped its future. */
export class UnreadResult {
  readonly #unread: UnreadResults;
  readonly #onRelease: Release;
  #bytes = 0;
  #isReleased = false;

  /** @param onRelease called once, when the inferlet has read the result or dropped its future */
  constructor(unread: UnreadResults, onRelease: Release = () => undefined) {
    this.#unread = unread;
    this.#onRelease = onRelease;
  }

  /** Counts a result that the inferlet can request again; returns an error when too many bytes are unread. */
  offer(bytes: number): HandlerError | null {
    const refused = this.#isReleased ? null : this.#unread.refusal(bytes);
    if (!refused) this.take(bytes);
    return refused;
  }

  /** Counts a result that cannot be requested again, even beyond the limit. */
  take(bytes: number): void {
    if (this.#isReleased) return;
    this.#bytes += bytes;
    this.#unread.count(bytes);
  }

  release(isRead: boolean): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#unread.count(-this.#bytes);
    this.#onRelease(isRead);
  }

  /** Releases the result once the guest has read the promise's value or has dropped its future. Returns the same promise. */
  of<T>(promise: Promise<T>): Promise<T> {
    return withRelease(promise, (isRead) => this.release(isRead));
  }
}

/** The unread results of one inferlet's calls. */
export class UnreadResults {
  readonly #tenantBytes: InferletShare;
  #bytes = 0;

  /** @param tenantBytes gives room beside the tenant's other inferlets */
  constructor(tenantBytes: InferletShare) {
    this.#tenantBytes = tenantBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts bytes of a result; a negative number when the inferlet has read or dropped it. */
  count(bytes: number): void {
    this.#bytes += bytes;
    this.#tenantBytes.add(bytes);
  }

  /** The error when there is no room for a result of this size, or null. The inferlet's own limit never refuses a single result. */
  refusal(bytes: number): HandlerError | null {
    if (!this.#tenantBytes.fits(bytes)) {
      const text =
        "the results that the tenant's inferlets have not read take their share of memory; read or drop some first";
      return handlerError('limit-exceeded', text);
    }
    if (this.bytes === 0 || this.bytes + bytes <= MAX_BYTES) return null;
    const text = `${this.bytes} bytes of results came in and were not read (${MAX_BYTES} may be); read or drop them first`;
    return handlerError('limit-exceeded', text);
  }

  /** Gives the tenant's share back. Call it when the inferlet has ended. */
  close(): void {
    this.#tenantBytes.close();
  }

  /**
   * Keeps a result that the inferlet can request again, while there is room.
   *
   * @param onRelease called once, when the inferlet has read the result or dropped its future
   */
  keep<T>(work: Promise<Outcome<T>>, bytesOf: (value: T) => number, onRelease?: Release): Promise<Outcome<T>> {
    const unreadResult = new UnreadResult(this, onRelease);
    return unreadResult.of(
      work.then((outcome) => {
        const refused = outcome.tag === 'ok' ? unreadResult.offer(bytesOf(outcome.val)) : null;
        return refused ? err(refused) : outcome;
      }),
    );
  }
}

/** Maximum calls that may wait at one source. */
const MAX_WAITING = 16;

/** An item of the source, with its place in the order of the items. */
interface Item<T> {
  readonly at: number;
  readonly outcome: Outcome<T>;
}

/** The part of an inferlet that reads. */
export interface ReadingInferlet extends Pick<Caller, 'stopped' | 'interruptions' | 'hooks'> {
  readonly unread: UnreadResults;
}

interface Reader<T> {
  readonly unreadResult: UnreadResult;
  readonly resolve: (outcome: Outcome<T>) => void;
  item: Item<T> | null;
}

/**
 * One inferlet's reads of a source that hands out each item once: a subscription, an HTTP body, a session. Items are taken one at a time, and
 * only while there is room for unread results. An item whose reader was dropped before the inferlet read it goes to the next reader.
 */
export class SourceReader<T> {
  readonly #inferlet: ReadingInferlet;
  readonly #take: () => Promise<Outcome<T>>;
  readonly #bytesOf: (value: T) => number;
  readonly #onRead: () => void;
  /** Readers without an item. */
  readonly #readers: Reader<T>[] = [];
  #isTaking = false;
  #takenCount = 0;
  /** Items whose readers were dropped, in order, kept for the next readers; counted as unread. */
  readonly #unclaimedItems: (Item<T> & { readonly unreadResult: UnreadResult })[] = [];
  #closed = false;

  /**
   * @param take must never reject
   * @param onRead called each time that the inferlet has read a value
   */
  constructor(
    inferlet: ReadingInferlet,
    take: () => Promise<Outcome<T>>,
    bytesOf: (value: T) => number,
    onRead: () => void = () => undefined,
  ) {
    this.#inferlet = inferlet;
    this.#take = take;
    this.#bytesOf = bytesOf;
    this.#onRead = onRead;
  }

  next(): Promise<Outcome<T>> {
    const { stopped, interruptions, hooks } = this.#inferlet;
    const refused = stopped ?? (this.#readers.length < MAX_WAITING ? null : TOO_MANY);
    if (refused) return Promise.resolve(err(refused));
    const { promise, resolve } = Promise.withResolvers<Outcome<T>>();
    const unreadResult = new UnreadResult(this.#inferlet.unread, (isRead) => this.#onRelease(reader, isRead));
    const reader: Reader<T> = { unreadResult, resolve, item: null };
    this.#readers.push(reader);
    this.#pump();
    return unreadResult.of(hooks.waits.during(interruptions.until(promise)));
  }

  /** Drops the unclaimed items, and each later item that finds no reader. */
  close(): void {
    this.#closed = true;
    for (const { unreadResult } of this.#unclaimedItems.splice(0)) unreadResult.release(false);
  }

  #pump(): void {
    while (this.#readers.length > 0) {
      const item = this.#unclaimedItems.shift();
      if (!item) break;
      item.unreadResult.release(false);
      this.#handOut(item);
    }
    if (this.#isTaking || this.#readers.length === 0) return;
    const refused = this.#inferlet.stopped ?? this.#inferlet.unread.refusal(1);
    if (refused) {
      for (const { resolve } of this.#readers.splice(0)) resolve(err(refused));
      return;
    }
    this.#isTaking = true;
    this.#take().then((outcome) => {
      this.#isTaking = false;
      this.#handOut({ at: this.#takenCount++, outcome });
      this.#pump();
    });
  }

  #handOut(item: Item<T>): void {
    const reader = this.#readers.shift();
    if (!reader) {
      this.#keep(item);
      return;
    }
    reader.item = item;
    this.#count(reader.unreadResult, item);
    reader.resolve(item.outcome);
  }

  /** Keeps an item for the next reader, in the order in which the items were taken. */
  #keep(item: Item<T>): void {
    if (this.#closed) return;
    const unreadResult = new UnreadResult(this.#inferlet.unread);
    this.#count(unreadResult, item);
    const previousIndex = this.#unclaimedItems.findLastIndex(({ at }) => at < item.at);
    this.#unclaimedItems.splice(previousIndex + 1, 0, { ...item, unreadResult });
  }

  #count(unreadResult: UnreadResult, { outcome }: Item<T>): void {
    if (outcome.tag === 'ok') unreadResult.take(this.#bytesOf(outcome.val));
  }

  /** Called when the inferlet has read a reader's result, or has dropped its future. */
  #onRelease(reader: Reader<T>, isRead: boolean): void {
    const { item, resolve } = reader;
    if (!item) {
      const at = this.#readers.indexOf(reader);
      if (at >= 0) this.#readers.splice(at, 1);
      resolve(err(DROPPED));
    } else if (!isRead) {
      this.#keep(item);
      this.#pump();
    } else if (item.outcome.tag === 'ok') this.#onRead();
  }
}

const TOO_MANY: HandlerError = handlerError(
  'limit-exceeded',
  `${MAX_WAITING} calls wait here already; await some of them first`,
);

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

/** Maximum bytes that the inferlets of a runtime hold in its process. Tenants share them. */
const MAX_RUNTIME_BYTES = 2 ** 30;
/** Bytes of each kind that every inferlet may hold, even when the shares are taken. */
const LEAST_BYTES = 64 * 1024;

/** The bytes that all inferlets of a runtime hold in its process: what calls carry, and results that no inferlet has read. */
export const inferletBytes = (maxBytes = MAX_RUNTIME_BYTES): Shares => new Shares(maxBytes);

/** One inferlet's bytes of one kind. */
export const takenBytes = (shares: Shares, tenant: string): InferletShare =>
  new InferletShare(shares, tenant, LEAST_BYTES);
