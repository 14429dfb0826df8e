import type { Shares } from '../policies/shares.ts';
import { decodeEnvelope, type Envelope } from './message.ts';

/**
 * The next item of a subscription. `dropped`: this many messages were dropped here, because the subscription or its tenant's share of the
 * process was full. `interrupted`: Redis was away, and the subscription may have missed broadcasts. `closed`: the subscription was closed.
 */
export type Next =
  | { readonly kind: 'message'; readonly envelope: Envelope }
  | { readonly kind: 'dropped'; readonly messages: number }
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'closed' };

/** Maximum messages that may wait in one subscription. */
export const MAX_WAITING_MESSAGES = 1024;
/** Maximum bytes of the messages that may wait in one subscription. */
export const MAX_WAITING_BYTES = 4 * 2 ** 20;

/** A message that waits in one or more of a tenant's subscriptions. Its bytes count once, until it waits in none. */
export class WaitingMessage {
  /** The encoded envelope; all subscriptions share it, so it must not change. */
  readonly encoded: Buffer;
  readonly #tenant: string;
  readonly #room: Shares;
  #subscriptionCount = 0;

  /** @param room shares of the tenants in the bytes that may wait in all subscriptions of the process */
  constructor(encoded: Buffer, tenant: string, room: Shares) {
    this.encoded = encoded;
    this.#tenant = tenant;
    this.#room = room;
  }

  /** Counts one more subscription in which the message waits. Returns false when there is no room. After true, the caller must call `leave` once. */
  enter(): boolean {
    if (this.#subscriptionCount === 0 && !this.#room.enter(this.#tenant, this.encoded.length)) return false;
    this.#subscriptionCount++;
    return true;
  }

  /** Counts one subscription less. */
  leave(): void {
    if (--this.#subscriptionCount === 0) this.#room.leave(this.#tenant, this.encoded.length);
  }
}

type Entry = WaitingMessage | { dropped: number } | 'interrupted';

/** The waiting messages of one subscription, bounded. A full subscription drops new messages, and counts them in one item. */
export class Subscription {
  /** Resolves once the subscription will receive all later broadcasts. Rejects with a `StoreError`. */
  readonly ready: Promise<void>;
  readonly #onClose: (self: Subscription) => Promise<void>;
  /** Pending calls of `next`, in order. */
  readonly #readers: ((next: Next) => void)[] = [];
  #waiting: Entry[] = [];
  #messageCount = 0;
  #bytes = 0;
  #closing: Promise<void> | null = null;

  /** @param onClose called once; resolves when Redis no longer counts the subscription */
  constructor(ready: Promise<void>, onClose: (self: Subscription) => Promise<void>) {
    this.ready = ready;
    this.#onClose = onClose;
  }

  next(): Promise<Next> {
    if (this.#closing) return Promise.resolve(CLOSED);
    const first = this.#waiting.shift();
    if (first === undefined) return new Promise((resolve) => this.#readers.push(resolve));
    if (first === 'interrupted') return Promise.resolve({ kind: 'interrupted' });
    if (!(first instanceof WaitingMessage)) return Promise.resolve({ kind: 'dropped', messages: first.dropped });
    const { encoded } = first;
    this.#messageCount--;
    this.#bytes -= encoded.length;
    first.leave();
    return Promise.resolve({ kind: 'message', envelope: decodeEnvelope(encoded) });
  }

  /** Adds a message that has arrived. */
  deliver(message: WaitingMessage): void {
    const { encoded } = message;
    const reader = this.#readers.shift();
    if (reader) {
      reader({ kind: 'message', envelope: decodeEnvelope(encoded) });
      return;
    }
    const fits = this.#messageCount < MAX_WAITING_MESSAGES && this.#bytes + encoded.length <= MAX_WAITING_BYTES;
    if (fits && message.enter()) {
      this.#messageCount++;
      this.#bytes += encoded.length;
      this.#waiting.push(message);
      return;
    }
    const last = this.#waiting.at(-1);
    if (typeof last === 'object' && 'dropped' in last) last.dropped++;
    else this.#waiting.push({ dropped: 1 });
  }

  /** Records that messages may have been missed. */
  interrupt(): void {
    const reader = this.#readers.shift();
    if (reader) reader({ kind: 'interrupted' });
    else if (this.#waiting.at(-1) !== 'interrupted') this.#waiting.push('interrupted');
  }

  /** Unsubscribes, and ends every pending `next`. Resolves when Redis no longer counts the subscription; never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #close(): Promise<void> {
    for (const entry of this.#waiting.splice(0)) if (entry instanceof WaitingMessage) entry.leave();
    for (const reader of this.#readers.splice(0)) reader(CLOSED);
    return this.#onClose(this);
  }
}

const CLOSED: Next = { kind: 'closed' };
