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

/** Bytes that wait in all subscriptions of a process, up to a bound. */
export class WaitingRoom {
  readonly #most: number;
  #bytes = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get bytes(): number {
    return this.#bytes;
  }

  enter(bytes: number): boolean {
    if (this.#bytes + bytes > this.#most) return false;
    this.#bytes += bytes;
    return true;
  }

  leave(bytes: number): void {
    this.#bytes -= bytes;
  }
}

type Waiting = Buffer | { dropped: number } | 'interrupted';

/** The messages of one subscription that wait to be read, bounded: what comes while it is full is dropped, and said once. */
export class Subscription {
  /** Completes once nothing that is broadcast from now on is missed. @throws StoreError */
  readonly ready: Promise<void>;
  readonly #room: WaitingRoom;
  readonly #onClose: (self: Subscription) => void;
  readonly #readers: ((next: Next) => void)[] = [];
  #waiting: Waiting[] = [];
  #messages = 0;
  #bytes = 0;
  #closed = false;

  constructor(ready: Promise<void>, room: WaitingRoom, onClose: (self: Subscription) => void) {
    this.ready = ready;
    this.#room = room;
    this.#onClose = onClose;
  }

  next(): Promise<Next> {
    if (this.#closed) return Promise.resolve(CLOSED);
    const first = this.#waiting.shift();
    if (first === undefined) return new Promise((resolve) => this.#readers.push(resolve));
    if (first === 'interrupted') return Promise.resolve({ kind: 'interrupted' });
    if (!Buffer.isBuffer(first)) return Promise.resolve({ kind: 'dropped', messages: first.dropped });
    this.#messages--;
    this.#bytes -= first.length;
    this.#room.leave(first.length);
    return Promise.resolve({ kind: 'message', envelope: decodeEnvelope(first) });
  }

  /** A message has come; `encoded` stays as it is. */
  deliver(encoded: Buffer): void {
    const reader = this.#readers.shift();
    if (reader) {
      reader({ kind: 'message', envelope: decodeEnvelope(encoded) });
      return;
    }
    const { length } = encoded;
    const fits = this.#messages < MAX_WAITING_MESSAGES && this.#bytes + length <= MAX_WAITING_BYTES;
    if (fits && this.#room.enter(length)) {
      this.#messages++;
      this.#bytes += length;
      this.#waiting.push(encoded);
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

  /** Unsubscribes; whoever waits is told. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#waiting = [];
    this.#room.leave(this.#bytes);
    for (const reader of this.#readers.splice(0)) reader(CLOSED);
    this.#onClose(this);
  }
}

const CLOSED: Next = { kind: 'closed' };
