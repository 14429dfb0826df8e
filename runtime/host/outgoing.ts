import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';

/** Calls of one inferlet that may be under way at once, and what they may carry: two files of the largest size. */
const MAX_CALLS = 1024;
const MAX_BYTES = 32 * 2 ** 20;

/**
 * Calls of one inferlet to anything but a device, and the bytes that they carry, from the moment they are made until they settle: however many
 * of them the inferlet awaits, drops, or is stopped under.
 */
export class Outgoing {
  #calls = 0;
  #bytes = 0;

  get calls(): number {
    return this.#calls;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Why no call with so many bytes can be made now, or null. */
  refusal(bytes: number): HandlerError | null {
    if (this.#calls < MAX_CALLS && this.#bytes + bytes <= MAX_BYTES) return null;
    const text = `${this.#calls} calls with ${this.#bytes} bytes are under way (${MAX_CALLS} and ${MAX_BYTES} may be); await some and call again`;
    return handlerError('limit-exceeded', text);
  }

  /** Counts a call, whether there is room or not; whoever begins ends. */
  begin(bytes: number): void {
    this.#calls++;
    this.#bytes += bytes;
  }

  end(bytes: number): void {
    this.#calls--;
    this.#bytes -= bytes;
  }

  /** Makes a call unless there is no room for it, and counts it until it settles. `call` copies what it sends before it returns. */
  async during<T>(bytes: number, call: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    const refused = this.refusal(bytes);
    if (refused) return err(refused);
    this.begin(bytes);
    try {
      return await call();
    } finally {
      this.end(bytes);
    }
  }
}
