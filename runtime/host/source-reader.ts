import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Inferlet } from './inferlet.ts';
import { DROPPED } from './sleepers.ts';
import { UnreadResult } from './unread-results.ts';

/** Maximum calls that may wait at one source. */
const MAX_WAITING = 16;

/** An item of the source, with its place in the order of the items. */
interface Item<T> {
  readonly at: number;
  readonly outcome: Outcome<T>;
}

interface Reader<T> {
  readonly place: UnreadResult;
  readonly resolve: (outcome: Outcome<T>) => void;
  item: Item<T> | null;
}

/**
 * One inferlet's reads of a source that hands out each item once: a subscription, a body, a session. Items are taken one at a time, and
 * only while there is room for unread results. An item whose reader was dropped before the inferlet read it goes to the next reader.
 */
export class SourceReader<T> {
  readonly #inferlet: Inferlet;
  readonly #take: () => Promise<Outcome<T>>;
  readonly #bytesOf: (value: T) => number;
  readonly #onRead: () => void;
  /** Readers without an item. */
  readonly #readers: Reader<T>[] = [];
  #taking = false;
  #takenCount = 0;
  /** Items whose readers were dropped, in order, kept for the next readers; counted as unread. */
  readonly #unclaimedItems: (Item<T> & { readonly place: UnreadResult })[] = [];
  #closed = false;

  /**
   * @param take must never reject
   * @param onRead called each time that the inferlet has read a value
   */
  constructor(
    inferlet: Inferlet,
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
    const place = new UnreadResult(this.#inferlet.unread, (isRead) => this.#onRelease(reader, isRead));
    const reader: Reader<T> = { place, resolve, item: null };
    this.#readers.push(reader);
    this.#pump();
    return place.of(hooks.waits.during(interruptions.until(promise)));
  }

  /** Drops the items that no reader is left for, also those that are still to come. */
  close(): void {
    this.#closed = true;
    for (const { place } of this.#unclaimedItems.splice(0)) place.release(false);
  }

  #pump(): void {
    while (this.#readers.length > 0) {
      const item = this.#unclaimedItems.shift();
      if (!item) break;
      item.place.release(false);
      this.#handOut(item);
    }
    if (this.#taking || this.#readers.length === 0) return;
    const refused = this.#inferlet.stopped ?? this.#inferlet.unread.refusal(1);
    if (refused) {
      for (const { resolve } of this.#readers.splice(0)) resolve(err(refused));
      return;
    }
    this.#taking = true;
    this.#take().then((outcome) => {
      this.#taking = false;
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
    this.#count(reader.place, item);
    reader.resolve(item.outcome);
  }

  #keep(item: Item<T>): void {
    if (this.#closed) return;
    const place = new UnreadResult(this.#inferlet.unread);
    this.#count(place, item);
    const previousIndex = this.#unclaimedItems.findLastIndex(({ at }) => at < item.at);
    this.#unclaimedItems.splice(previousIndex + 1, 0, { ...item, place });
  }

  #count(place: UnreadResult, { outcome }: Item<T>): void {
    if (outcome.tag === 'ok') place.take(this.#bytesOf(outcome.val));
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
