import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { InferletShare } from '#scheduler/policies/shares.ts';

/** Maximum calls of one inferlet under way at once. */
const MAX_CALLS = 1024;
/** Maximum bytes that these calls carry together: two files of the largest size. */
const MAX_BYTES = 32 * 2 ** 20;

/**
 * Counts the calls of one inferlet that this process holds in its memory, and the bytes that they carry. It holds calls to anything but a device,
 * calls that wait for a KV file to open, and runs that a quota caps or a grammar guides. A call counts until it settles, even when the inferlet
 * drops it or is stopped.
 */
export class Outgoing {
  readonly #tenantBytes: InferletShare;
  #calls = 0;
  #bytes = 0;

  /** @param tenantBytes counts the bytes of this inferlet within its tenant's limit */
  constructor(tenantBytes: InferletShare) {
    this.#tenantBytes = tenantBytes;
  }

  get calls(): number {
    return this.#calls;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The error when no call with this many bytes may be made now, or null. */
  refusal(bytes: number): HandlerError | null {
    if (this.#calls < MAX_CALLS && this.#bytes + bytes <= MAX_BYTES) {
      if (this.#tenantBytes.fits(bytes)) return null;
      const text =
        "the calls under way of all the tenant's inferlets have reached their limit of bytes; await some and call again";
      return handlerError('limit-exceeded', text);
    }
    const text = `${this.#calls} calls with ${this.#bytes} bytes are under way (the limits are ${MAX_CALLS} and ${MAX_BYTES}); await some and call again`;
    return handlerError('limit-exceeded', text);
  }

  /** Counts a call, even when there is no room. The caller must call `end`. */
  begin(bytes: number): void {
    this.#calls++;
    this.#bytes += bytes;
    this.#tenantBytes.add(bytes);
  }

  end(bytes: number): void {
    this.#calls--;
    this.#bytes -= bytes;
    this.#tenantBytes.add(-bytes);
  }

  /** Makes a call if there is room, and counts it until it settles. `call` must copy what it sends before it returns. */
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
