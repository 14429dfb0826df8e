import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { InferletShare } from '#scheduler/policies/shares.ts';
import { type Release, withRelease } from '../lowering/future-release.ts';

/** Maximum bytes of results that wait for an inferlet to read them: two files of the largest size. */
const MAX_BYTES = 32 * 2 ** 20;

/** Counts one result's bytes until the inferlet has read the result, or has dropped its future. */
export class UnreadResult {
  readonly #unread: UnreadResults;
  readonly #onRelease: Release;
  #bytes = 0;
  #isReleased = false;

  /** @param onRelease called once, when the inferlet has read the result or dropped its future */
  constructor(unread: UnreadResults, onRelease: Release = () => undefined) {
    this.#unread = unread;
    this.#onRelease = onRelease;
  }

  /** Counts a result that the inferlet can request again; returns an error when too many bytes are unread. */
  offer(bytes: number): HandlerError | null {
    const refused = this.#isReleased ? null : this.#unread.refusal(bytes);
    if (!refused) this.take(bytes);
    return refused;
  }

  /** Counts a result that cannot be requested again, even beyond the limit. */
  take(bytes: number): void {
    if (this.#isReleased) return;
    this.#bytes += bytes;
    this.#unread.count(bytes);
  }

  release(isRead: boolean): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#unread.count(-this.#bytes);
    this.#onRelease(isRead);
  }

  /** Releases the result once the guest has read the promise's value or has dropped its future. Returns the same promise. */
  of<T>(promise: Promise<T>): Promise<T> {
    return withRelease(promise, (isRead) => this.release(isRead));
  }
}

/** The unread results of one inferlet's calls. */
export class UnreadResults {
  readonly #tenantBytes: InferletShare;
  #bytes = 0;

  /** @param tenantBytes gives room beside the tenant's other inferlets */
  constructor(tenantBytes: InferletShare) {
    this.#tenantBytes = tenantBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts bytes of a result; a negative number when the inferlet has read or dropped it. */
  count(bytes: number): void {
    this.#bytes += bytes;
    this.#tenantBytes.add(bytes);
  }

  /** The error when there is no room for a result of this size, or null. The inferlet's own limit never refuses a single result. */
  refusal(bytes: number): HandlerError | null {
    if (!this.#tenantBytes.fits(bytes)) {
      const text =
        "the results that the tenant's inferlets have not read take their share of memory; read or drop some first";
      return handlerError('limit-exceeded', text);
    }
    if (this.bytes === 0 || this.bytes + bytes <= MAX_BYTES) return null;
    const text = `${this.bytes} bytes of results came in and were not read (${MAX_BYTES} may be); read or drop them first`;
    return handlerError('limit-exceeded', text);
  }

  /** Gives the tenant's share back. Call it when the inferlet has ended. */
  close(): void {
    this.#tenantBytes.close();
  }

  /**
   * Keeps a result that the inferlet can request again, while there is room.
   *
   * @param onRelease called once, when the inferlet has read the result or dropped its future
   */
  keep<T>(work: Promise<Outcome<T>>, bytesOf: (value: T) => number, onRelease?: Release): Promise<Outcome<T>> {
    const unreadResult = new UnreadResult(this, onRelease);
    return unreadResult.of(
      work.then((outcome) => {
        const refused = outcome.tag === 'ok' ? unreadResult.offer(bytesOf(outcome.val)) : null;
        return refused ? err(refused) : outcome;
      }),
    );
  }
}
