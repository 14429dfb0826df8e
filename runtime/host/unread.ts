import { err, type HandlerError, handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { lettingGo } from '../lowering/let-go.ts';

/** Bytes of results that wait for an inferlet to read them: two files of the largest size. */
const MAX_BYTES = 32 * 2 ** 20;

/** What one result weighs here until the inferlet has read it, or has dropped its future. */
export class Place {
  readonly #unread: Unread;
  readonly #onLetGo: () => void;
  #bytes = 0;
  #gone = false;

  /** @param onLetGo called once, when the inferlet has read the result or wants it no more */
  constructor(unread: Unread, onLetGo: () => void = () => undefined) {
    this.#unread = unread;
    this.#onLetGo = onLetGo;
  }

  /** Counts a result that can be asked for again; answers why not when too much is unread already. */
  offer(bytes: number): HandlerError | null {
    const refused = this.#gone ? null : this.#unread.refusal(bytes);
    if (!refused) this.take(bytes);
    return refused;
  }

  /** Counts a result that is nowhere else any more. */
  take(bytes: number): void {
    if (this.#gone) return;
    this.#bytes += bytes;
    this.#unread.bytes += bytes;
  }

  letGo(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#unread.bytes -= this.#bytes;
    this.#onLetGo();
  }

  /** The promise of the result: its future frees the place. */
  of<T>(promise: Promise<T>): Promise<T> {
    return lettingGo(promise, () => this.letGo());
  }
}

/** Results of one inferlet's calls that came in and were not read. */
export class Unread {
  bytes = 0;

  /** Why a result of so many bytes is not kept, or null. One is kept always, however large. */
  refusal(bytes: number): HandlerError | null {
    if (this.bytes === 0 || this.bytes + bytes <= MAX_BYTES) return null;
    const text = `${this.bytes} bytes of results came in and were not read (${MAX_BYTES} may be); read or drop them first`;
    return handlerError('limit-exceeded', text);
  }

  /** What can be asked for again is kept while there is room. */
  kept<T>(work: Promise<Outcome<T>>, bytesOf: (value: T) => number): Promise<Outcome<T>> {
    const place = new Place(this);
    return place.of(
      work.then((outcome) => {
        const refused = outcome.tag === 'ok' ? place.offer(bytesOf(outcome.val)) : null;
        return refused ? err(refused) : outcome;
      }),
    );
  }
}
