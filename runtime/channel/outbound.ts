import { Fifo } from './fifo.ts';
import { SendCredit } from './flow.ts';
import { FLAG_MORE, frame } from './frames.ts';
import { FRAME_COST, MAX_PAYLOAD_BYTES } from './limits.ts';

interface Waiting {
  readonly kind: number;
  readonly payload: Buffer;
  /** Bytes of the payload that were already sent. */
  sent: number;
}

/** Messages of one invocation that wait to be sent, in order. Cuts them into frames as the credit allows. */
export class Outbound {
  readonly credit = new SendCredit();
  readonly #invocation: number;
  readonly #changed: (bytes: number) => void;
  readonly #queue = new Fifo<Waiting>();
  #queuedBytes = 0;
  #ended = false;
  #begun = false;
  /** Settles with the next message that is sent, while a caller waits for it. */
  #next: PromiseWithResolvers<boolean> | null = null;

  /** @param changed called with the change of the number of waiting bytes */
  constructor(invocation: number, changed: (bytes: number) => void) {
    this.#invocation = invocation;
    this.#changed = changed;
  }

  /** Bytes of the waiting messages, including their overhead. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** True when a frame was sent. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Resolves with true when the next message has been sent whole; with false when the queue has ended. */
  sent(): Promise<boolean> {
    if (this.#ended) return Promise.resolve(false);
    this.#next ??= Promise.withResolvers();
    return this.#next.promise;
  }

  add(kind: number, payload: Buffer): void {
    if (this.#ended) return;
    this.#queue.push({ kind, payload, sent: 0 });
    this.#count(payload.length + FRAME_COST);
  }

  /** Returns the next frame; null when no message waits, or the credit is too small. */
  next(): Buffer | null {
    const message = this.#queue.first;
    if (!message) return null;
    const { kind, payload, sent } = message;
    const left = payload.length - sent;
    const cut = sent === 0 && left > MAX_PAYLOAD_BYTES;
    const size = Math.min(left, cut ? MAX_PAYLOAD_BYTES - 4 : MAX_PAYLOAD_BYTES);
    if (!this.credit.take(FRAME_COST + size + (cut ? 4 : 0))) return null;
    this.#begun = true;
    message.sent += size;
    const whole = message.sent === payload.length;
    this.#count(whole ? -size - FRAME_COST : -size);
    if (whole) {
      this.#queue.shift();
      this.#settle(true);
    }
    const part = size === payload.length ? payload : payload.subarray(sent, sent + size);
    return frame(this.#invocation, kind, whole ? 0 : FLAG_MORE, part, cut ? payload.length : -1);
  }

  /** Forgets the waiting messages and takes no more. */
  end(): void {
    this.#ended = true;
    this.#queue.clear();
    this.#count(-this.#queuedBytes);
    this.#settle(false);
  }

  #settle(sent: boolean): void {
    this.#next?.resolve(sent);
    this.#next = null;
  }

  #count(bytes: number): void {
    this.#queuedBytes += bytes;
    this.#changed(bytes);
  }
}
