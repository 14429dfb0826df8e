import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Caller } from './ask.ts';
import { DROPPED } from './sleepers.ts';
import { UnreadResult, type UnreadResults } from './unread-results.ts';

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
