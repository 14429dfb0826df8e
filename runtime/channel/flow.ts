import { ChannelFault } from './fault.ts';
import { WINDOW_BYTES } from './limits.ts';

/** Credit for sending to one invocation, in bytes, with `FRAME_COST` for each frame. */
export class SendCredit {
  #remainingBytes = WINDOW_BYTES;

  get left(): number {
    return this.#remainingBytes;
  }

  /** Uses credit; returns false when there is too little. */
  take(bytes: number): boolean {
    if (bytes > this.#remainingBytes) return false;
    this.#remainingBytes -= bytes;
    return true;
  }

  /** Adds credit for bytes that the peer has taken. @throws ChannelFault when this side has not sent the peer that many bytes */
  give(bytes: number): void {
    if (bytes === 0 || this.#remainingBytes + bytes > WINDOW_BYTES) {
      throw new ChannelFault('too-much-in-flight', `the peer took ${bytes} bytes, which it was not sent`);
    }
    this.#remainingBytes += bytes;
  }
}

/** Credit that the peer has for sending to one invocation on this side. */
export class ReceiveCredit {
  #outstanding = 0;
  #takenBytes = 0;

  /** Bytes that arrived and whose credit was not given back. */
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
   * Counts bytes that this side has taken, and returns the credit to give back now. Returns 0 until half a window is taken, so that credit needs few
   * frames. The peer can still send meanwhile: the other half of the window is larger than a frame.
   */
  took(bytes: number): number {
    this.#takenBytes += bytes;
    if (this.#takenBytes < WINDOW_BYTES / 2) return 0;
    const returnedBytes = this.#takenBytes;
    this.#takenBytes = 0;
    this.#outstanding -= returnedBytes;
    return returnedBytes;
  }
}

/** Room that large messages of all invocations share while they are assembled. First come, first served. */
export class SharedRoom {
  #freeBytes: number;
  readonly #queue: { readonly bytes: number; readonly begin: () => void }[] = [];

  constructor(bytes: number) {
    this.#freeBytes = bytes;
  }

  get free(): number {
    return this.#freeBytes;
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /** Calls `begin`, now or later, when there is room. Returns a function that withdraws the request while it waits. */
  reserve(bytes: number, begin: () => void): () => void {
    const entry = { bytes, begin };
    this.#queue.push(entry);
    this.#admit();
    return () => {
      const at = this.#queue.indexOf(entry);
      if (at < 0) return;
      this.#queue.splice(at, 1);
      this.#admit();
    };
  }

  release(bytes: number): void {
    this.#freeBytes += bytes;
    this.#admit();
  }

  #admit(): void {
    for (;;) {
      const [first] = this.#queue;
      if (!first || first.bytes > this.#freeBytes) return;
      this.#queue.shift();
      this.#freeBytes -= first.bytes;
      first.begin();
    }
  }
}
