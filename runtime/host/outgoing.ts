import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { Shares } from '#scheduler/policies/shares.ts';

/** Most calls of one inferlet under way at once, and most bytes that they carry: two files of the largest size. */
const MAX_CALLS = 1024;
const MAX_BYTES = 32 * 2 ** 20;
/** Most bytes of the calls of all inferlets of a runtime; tenants share them. */
const MAX_SHARED_BYTES = 2 ** 30;
/** Bytes that the calls of every inferlet may carry, whatever those of others carry. */
const LEAST_BYTES = 64 * 1024;

/** The bytes of the calls of all inferlets of a runtime. */
export const carriedBytes = (most = MAX_SHARED_BYTES): Shares => new Shares(most);

/**
 * Counts the calls of one inferlet to anything but a device, and the bytes that they carry. A call counts until it settles, even when the
 * inferlet drops it or is stopped.
 */
export class Outgoing {
  readonly #shared: Shares;
  readonly #tenant: string;
  #calls = 0;
  #bytes = 0;

  /** @param shared the bytes of the calls of all inferlets */
  constructor(shared: Shares, tenant: string) {
    this.#shared = shared;
    this.#tenant = tenant;
  }

  get calls(): number {
    return this.#calls;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The error when no call with this many bytes may be made now, or null. */
  refusal(bytes: number): HandlerError | null {
    const total = this.#bytes + bytes;
    if (this.#calls < MAX_CALLS && total <= MAX_BYTES) {
      if (total <= LEAST_BYTES || this.#shared.fits(this.#tenant, bytes)) return null;
      const text =
        "the calls of the tenant's inferlets carry as many bytes as may be under way; await some and call again";
      return handlerError('limit-exceeded', text);
    }
    const text = `${this.#calls} calls with ${this.#bytes} bytes are under way (${MAX_CALLS} and ${MAX_BYTES} may be); await some and call again`;
    return handlerError('limit-exceeded', text);
  }

  /** Counts a call, even when there is no room. The caller must call `end`. */
  begin(bytes: number): void {
    this.#calls++;
    this.#bytes += bytes;
    this.#shared.add(this.#tenant, bytes);
  }

  end(bytes: number): void {
    this.#calls--;
    this.#bytes -= bytes;
    this.#shared.leave(this.#tenant, bytes);
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
