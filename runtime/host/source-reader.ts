import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Inferlet } from './inferlet.ts';
import { DROPPED } from './sleepers.ts';
import { UnreadResult } from './unread-results.ts';

/** Maximum calls that may wait at one source. */
const MAX_WAITING = 16;

interface Reader<T> {
  readonly place: UnreadResult;
  readonly resolve: (outcome: Outcome<T>) => void;
}

/**
 * One inferlet's reads of a source that hands out each item once: a subscription, a body, a session. Items are taken one at a time, and
 * only while there is room for unread results. An item taken for a reader that was dropped meanwhile goes to the next reader.
 */
export class SourceReader<T> {
  readonly #inferlet: Inferlet;
  readonly #take: () => Promise<Outcome<T>>;
  readonly #bytesOf: (value: T) => number;
  readonly #readers: Reader<T>[] = [];
  #taking = false;
  /** An item whose reader was dropped, kept for the next reader; counted as unread. */
  #left: { readonly outcome: Outcome<T>; readonly place: UnreadResult } | null = null;
  #closed = false;

  /** @param take must never reject */
  constructor(inferlet: Inferlet, take: () => Promise<Outcome<T>>, bytesOf: (value: T) => number) {
    this.#inferlet = inferlet;
    this.#take = take;
    this.#bytesOf = bytesOf;
  }

  next(): Promise<Outcome<T>> {
    const { stopped, interruptions, hooks } = this.#inferlet;
    const refused = stopped ?? (this.#readers.length < MAX_WAITING ? null : TOO_MANY);
    if (refused) return Promise.resolve(err(refused));
    const { promise, resolve } = Promise.withResolvers<Outcome<T>>();
    const place: UnreadResult = new UnreadResult(this.#inferlet.unread, () => this.#leave(place));
    this.#readers.push({ place, resolve });
    this.#pump();
    return place.of(hooks.waits.during(interruptions.until(promise)));
  }

  /** Drops the item that no reader is left for, also one that is still to come. */
  close(): void {
    this.#closed = true;
    this.#dropLeft();
  }

  #dropLeft(): void {
    this.#left?.place.release();
    this.#left = null;
  }

  #pump(): void {
    const left = this.#left;
    if (this.#taking || this.#readers.length === 0) return;
    if (left) {
      this.#dropLeft();
      this.#arrived(left.outcome);
      return;
    }
    const refused = this.#inferlet.stopped ?? this.#inferlet.unread.refusal(1);
    if (refused) {
      for (const { resolve } of this.#readers.splice(0)) resolve(err(refused));
      return;
    }
    this.#taking = true;
    this.#take().then((outcome) => {
      this.#taking = false;
      this.#arrived(outcome);
    });
  }

  #arrived(outcome: Outcome<T>): void {
    const reader = this.#readers.shift();
    const place = reader?.place ?? new UnreadResult(this.#inferlet.unread);
    if (outcome.tag === 'ok') place.take(this.#bytesOf(outcome.val));
    if (!reader) {
      this.#left = { outcome, place };
      if (this.#closed) this.#dropLeft();
      return;
    }
    reader.resolve(outcome);
    this.#pump();
  }

  /** Removes a reader whose future was dropped before it got an item; does nothing for an answered reader. */
  #leave(place: UnreadResult): void {
    const at = this.#readers.findIndex((reader) => reader.place === place);
    if (at >= 0) this.#readers.splice(at, 1)[0]?.resolve(err(DROPPED));
  }
}

const TOO_MANY: HandlerError = handlerError(
  'limit-exceeded',
  `${MAX_WAITING} calls wait here already; await some of them first`,
);
