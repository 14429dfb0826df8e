import { type Aborter, type AbortSignalLike, abortError, aborter } from '../abort.ts';
import { InferletError, unless } from '../errors.ts';

/** Options for receiving a message. */
export interface ReceiveOptions {
  /** Ends the wait when aborted. The next reader then gets the message. */
  readonly signal?: AbortSignalLike;
}

interface Reader<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

type Outcome<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown };

/** Values of `next` until it throws `closed`. */
export async function* untilClosed<T extends object | string>(next: () => Promise<T>): AsyncGenerator<T, void, void> {
  for (;;) {
    const value = await unless('closed', next());
    if (value === undefined) return;
    yield value;
  }
}

/**
 * Lets several readers share a source that hands out each value only once. Readers are served in order, with one read of the source at a time.
 * A read that the source cannot end continues after its reader has left, and its value goes to the next reader.
 */
export class Inbox<T> {
  readonly #take: (signal: AbortSignalLike) => Promise<T>;
  readonly #disposeUnwanted: ((value: T) => Promise<void>) | undefined;
  readonly #readers: Reader<T>[] = [];
  #keptOutcome: Outcome<T> | undefined;
  /** Ends the read that is under way; undefined without one. */
  #readAborter: Aborter | undefined;

  /**
   * @param take reads the source; may end, with the signal's error, when the last reader has left
   * @param unwanted disposes of a value that arrives while no reader waits; if it rejects, the inbox keeps the value
   */
  constructor(take: (signal: AbortSignalLike) => Promise<T>, unwanted?: (value: T) => Promise<void>) {
    this.#take = take;
    this.#disposeUnwanted = unwanted;
  }

  /** True when no reader waits, no value is kept and no read is under way. */
  get idle(): boolean {
    return !this.#readAborter && this.#readers.length === 0 && this.#keptOutcome === undefined;
  }

  next({ signal }: ReceiveOptions = {}): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (signal?.aborted) throw abortError(signal);
      const leave = () => {
        this.#readers.splice(this.#readers.indexOf(reader), 1);
        if (this.#readers.length === 0) this.#readAborter?.abort(NO_READER);
        if (signal) reject(abortError(signal));
      };
      const served =
        <V>(serve: (value: V) => void) =>
        (value: V) => {
          signal?.removeEventListener('abort', leave);
          serve(value);
        };
      const reader = { resolve: served(resolve), reject: served(reject) };
      signal?.addEventListener('abort', leave);
      this.#readers.push(reader);
      this.#pump();
    });
  }

  #pump(): void {
    if (this.#readAborter || this.#readers.length === 0) return;
    const kept = this.#keptOutcome;
    if (kept) {
      this.#keptOutcome = undefined;
      this.#arrived(kept);
      return;
    }
    this.#readAborter = aborter();
    void this.#read(this.#readAborter.signal);
  }

  async #read(signal: AbortSignalLike): Promise<void> {
    let outcome: Outcome<T>;
    try {
      outcome = { ok: true, value: await this.#take(signal) };
    } catch (error) {
      outcome = { ok: false, error };
    }
    try {
      if (outcome.ok && this.#disposeUnwanted && this.#readers.length === 0) await this.#disposeUnwanted(outcome.value);
      else if (outcome.ok || outcome.error !== NO_READER) this.#arrived(outcome);
    } catch {
      this.#arrived(outcome);
    }
    this.#readAborter = undefined;
    this.#pump();
  }

  #arrived(outcome: Outcome<T>): void {
    const reader = this.#readers.shift();
    if (!reader) this.#keptOutcome = outcome;
    else if (outcome.ok) reader.resolve(outcome.value);
    else reader.reject(outcome.error);
    this.#pump();
  }
}

const NO_READER = /* @__PURE__ */ new InferletError('cancelled', 'No reader waits any more.');
