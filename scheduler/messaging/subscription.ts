import type { Shares } from '../policies/shares.ts';
import { decodeEnvelope, type Envelope } from './message.ts';

/**
 * What a subscription hands out next. `dropped`: messages came while too many waited. `interrupted`: Redis was away, and what was broadcast
 * meanwhile is missed. `closed`: it was closed.
 */
export type Next =
  | { readonly kind: 'message'; readonly envelope: Envelope }
  | { readonly kind: 'dropped'; readonly messages: number }
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'closed' };

/** What may wait in one subscription. */
export const MAX_WAITING_MESSAGES = 1024;
export const MAX_WAITING_BYTES = 4 * 2 ** 20;

/** A message that may wait in several subscriptions of a tenant: while it does in any, its bytes count, once. */
export class Waiting {
  /** Stays as it is. */
  readonly encoded: Buffer;
  readonly #tenant: string;
  readonly #room: Shares;
  #places = 0;

  /** @param room bytes that may wait in all subscriptions of the process */
  constructor(encoded: Buffer, tenant: string, room: Shares) {
    this.encoded = encoded;
    this.#tenant = tenant;
    this.#room = room;
  }

  /** Takes a place in one more subscription, unless there is no room. Whoever enters leaves. */
  enter(): boolean {
    if (this.#places === 0 && !this.#room.enter(this.#tenant, this.encoded.length)) return false;
    this.#places++;
    return true;
  }

  leave(): void {
    if (--this.#places === 0) this.#room.leave(this.#tenant, this.encoded.length);
  }
}

type Entry = Waiting | { dropped: number } | 'interrupted';

/** The messages of one subscription that wait to be read, bounded: what comes while it is full is dropped, and said once. */
export class Subscription {
  /** Completes once nothing that is broadcast from now on is missed. @throws StoreError */
  readonly ready: Promise<void>;
  readonly #onClose: (self: Subscription) => Promise<void>;
  readonly #readers: ((next: Next) => void)[] = [];
  #waiting: Entry[] = [];
  #messages = 0;
  #bytes = 0;
  #closed: Promise<void> | null = null;

  /** @param onClose called once; resolves when nobody counts the subscription any more */
  constructor(ready: Promise<void>, onClose: (self: Subscription) => Promise<void>) {
    this.ready = ready;
    this.#onClose = onClose;
  }

  next(): Promise<Next> {
    if (this.#closed) return Promise.resolve(CLOSED);
    const first = this.#waiting.shift();
    if (first === undefined) return new Promise((resolve) => this.#readers.push(resolve));
    if (first === 'interrupted') return Promise.resolve({ kind: 'interrupted' });
    if (!(first instanceof Waiting)) return Promise.resolve({ kind: 'dropped', messages: first.dropped });
    const { encoded } = first;
    this.#messages--;
    this.#bytes -= encoded.length;
    first.leave();
    return Promise.resolve({ kind: 'message', envelope: decodeEnvelope(encoded) });
  }

  /** A message has come. */
  deliver(message: Waiting): void {
    const { encoded } = message;
    const reader = this.#readers.shift();
    if (reader) {
      reader({ kind: 'message', envelope: decodeEnvelope(encoded) });
      return;
    }
    const fits = this.#messages < MAX_WAITING_MESSAGES && this.#bytes + encoded.length <= MAX_WAITING_BYTES;
    if (fits && message.enter()) {
      this.#messages++;
      this.#bytes += encoded.length;
      this.#waiting.push(message);
      return;
    }
    const last = this.#waiting.at(-1);
    if (typeof last === 'object' && 'dropped' in last) last.dropped++;
    else this.#waiting.push({ dropped: 1 });
  }

  /** Messages may have been missed. */
  interrupt(): void {
    const reader = this.#readers.shift();
    if (reader) reader({ kind: 'interrupted' });
    else if (this.#waiting.at(-1) !== 'interrupted') this.#waiting.push('interrupted');
  }

  /** Unsubscribes; whoever waits is told. Resolves when nobody counts it any more, and never rejects. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  #close(): Promise<void> {
    for (const entry of this.#waiting.splice(0)) if (entry instanceof Waiting) entry.leave();
    for (const reader of this.#readers.splice(0)) reader(CLOSED);
    return this.#onClose(this);
  }
}

const CLOSED: Next = { kind: 'closed' };
