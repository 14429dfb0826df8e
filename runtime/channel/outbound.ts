import { Fifo } from './fifo.ts';
import { SendCredit } from './flow.ts';
import { FLAG_MORE, frame } from './frames.ts';
import { FRAME_COST, MAX_PAYLOAD_BYTES } from './limits.ts';

/** A message that has several frames begins with its length, in this many bytes. */
const LENGTH_BYTES = 4;

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
  readonly #onQueuedChange: (bytes: number) => void;
  readonly #queue = new Fifo<Waiting>();
  #queuedBytes = 0;
  #ended = false;
  #begun = false;
  /** Settles when the next message has been sent whole; null while no caller waits for this. */
  #nextSent: PromiseWithResolvers<boolean> | null = null;

  /** @param onQueuedChange called with the change of the number of waiting bytes */
  constructor(invocation: number, onQueuedChange: (bytes: number) => void) {
    this.#invocation = invocation;
    this.#onQueuedChange = onQueuedChange;
  }

  /** Bytes of the waiting messages, with `FRAME_COST` for each. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** True once `next` has returned a frame. */
  get begun(): boolean {
    return this.#begun;
  }

  /** Resolves with true when the next message has been sent whole; with false when the queue has ended. */
  sent(): Promise<boolean> {
    if (this.#ended) return Promise.resolve(false);
    this.#nextSent ??= Promise.withResolvers();
    return this.#nextSent.promise;
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
    const unsentBytes = payload.length - sent;
    const isFirstOfSeveral = sent === 0 && unsentBytes > MAX_PAYLOAD_BYTES;
    const lengthBytes = isFirstOfSeveral ? LENGTH_BYTES : 0;
    const size = Math.min(unsentBytes, MAX_PAYLOAD_BYTES - lengthBytes);
    if (!this.credit.take(FRAME_COST + lengthBytes + size)) return null;
    this.#begun = true;
    message.sent += size;
    const isComplete = message.sent === payload.length;
    this.#count(isComplete ? -size - FRAME_COST : -size);
    if (isComplete) {
      this.#queue.shift();
      this.#settle(true);
    }
    const part = size === payload.length ? payload : payload.subarray(sent, sent + size);
    return frame(this.#invocation, kind, isComplete ? 0 : FLAG_MORE, part, isFirstOfSeveral ? payload.length : -1);
  }

  /** Forgets the waiting messages and takes no more. */
  end(): void {
    this.#ended = true;
    this.#queue.clear();
    this.#count(-this.#queuedBytes);
    this.#settle(false);
  }

  #settle(sent: boolean): void {
    this.#nextSent?.resolve(sent);
    this.#nextSent = null;
  }

  #count(bytes: number): void {
    this.#queuedBytes += bytes;
    this.#onQueuedChange(bytes);
  }
}
