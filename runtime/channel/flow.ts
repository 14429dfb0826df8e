import { ChannelFault } from './fault.ts';
import { WINDOW_BYTES } from './limits.ts';

/** Credit of one invocation to send, in bytes with their frames' headers. */
export class SendCredit {
  #left = WINDOW_BYTES;

  get left(): number {
    return this.#left;
  }

  /** Uses credit, if there is enough. */
  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }

  /** The peer has taken so many bytes. @throws ChannelFault when it was not sent as many */
  give(bytes: number): void {
    if (bytes === 0 || this.#left + bytes > WINDOW_BYTES) {
      throw new ChannelFault('too-much-in-flight', `the peer took ${bytes} bytes, which it was not sent`);
    }
    this.#left += bytes;
  }
}

/** Credit that the peer has to send to one invocation here. */
export class ReceiveCredit {
  #outstanding = 0;
  #taken = 0;

  /** Bytes that came in and were not given back. */
  get outstanding(): number {
    return this.#outstanding;
  }

  /** Counts a frame. @throws ChannelFault when the peer had no credit for it */
  accept(bytes: number): void {
    this.#outstanding += bytes;
    if (this.#outstanding > WINDOW_BYTES) {
      throw new ChannelFault('too-much-in-flight', `the peer sent more than the ${WINDOW_BYTES} bytes that it may`);
    }
  }

  /**
   * These bytes were taken. Answers how many to give back now: half a window at least, so that credit costs few frames. The other half is larger
   * than a frame, so the peer can always send one.
   */
  took(bytes: number): number {
    this.#taken += bytes;
    if (this.#taken < WINDOW_BYTES / 2) return 0;
    const given = this.#taken;
    this.#taken = 0;
    this.#outstanding -= given;
    return given;
  }
}

/** Room that large messages of all invocations share while they are put together. First come, first served. */
export class SharedRoom {
  #free: number;
  readonly #waiting: { readonly bytes: number; readonly begin: () => void }[] = [];

  constructor(bytes: number) {
    this.#free = bytes;
  }

  get free(): number {
    return this.#free;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Calls `begin`, now or later, when there is room. Answers how to leave the line. */
  reserve(bytes: number, begin: () => void): () => void {
    const entry = { bytes, begin };
    this.#waiting.push(entry);
    this.#admit();
    return () => {
      const at = this.#waiting.indexOf(entry);
      if (at < 0) return;
      this.#waiting.splice(at, 1);
      this.#admit();
    };
  }

  release(bytes: number): void {
    this.#free += bytes;
    this.#admit();
  }

  #admit(): void {
    for (;;) {
      const [first] = this.#waiting;
      if (!first || first.bytes > this.#free) return;
      this.#waiting.shift();
      this.#free -= first.bytes;
      first.begin();
    }
  }
}
