import { type AbortSignalLike, abortError } from './abort.ts';

/** How something is waited for that is handed out once. */
export interface ReceiveOptions {
  /** Ends the wait when it is aborted; what would have come is kept for whoever waits next. */
  readonly signal?: AbortSignalLike;
}

interface Reader<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

type Outcome<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown };

/**
 * Reads of a source that hands out each thing once. Those who wait are served in order, with one read of the source at a time; one that nobody
 * waits for any more goes on, and what it brings is for the next.
 */
export class Inbox<T> {
  readonly #take: () => Promise<T>;
  readonly #unwanted: ((value: T) => Promise<void>) | undefined;
  readonly #readers: Reader<T>[] = [];
  #kept: Outcome<T> | undefined;
  #taking = false;

  /** @param unwanted does something else with what came for nobody; what it cannot get rid of (it rejects) is kept, too */
  constructor(take: () => Promise<T>, unwanted?: (value: T) => Promise<void>) {
    this.#take = take;
    this.#unwanted = unwanted;
  }

  /** Whether nobody waits, and nothing is kept or on its way. */
  get idle(): boolean {
    return !this.#taking && this.#readers.length === 0 && this.#kept === undefined;
  }

  next({ signal }: ReceiveOptions = {}): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (signal?.aborted) throw abortError(signal);
      const leave = () => {
        this.#readers.splice(this.#readers.indexOf(reader), 1);
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
    if (this.#taking || this.#readers.length === 0) return;
    const kept = this.#kept;
    if (kept) {
      this.#kept = undefined;
      this.#arrived(kept);
      return;
    }
    this.#taking = true;
    void this.#read();
  }

  async #read(): Promise<void> {
    let outcome: Outcome<T>;
    try {
      outcome = { ok: true, value: await this.#take() };
    } catch (error) {
      outcome = { ok: false, error };
    }
    try {
      if (outcome.ok && this.#unwanted && this.#readers.length === 0) await this.#unwanted(outcome.value);
      else this.#arrived(outcome);
    } catch {
      this.#arrived(outcome);
    }
    this.#taking = false;
    this.#pump();
  }

  #arrived(outcome: Outcome<T>): void {
    const reader = this.#readers.shift();
    if (!reader) this.#kept = outcome;
    else if (outcome.ok) reader.resolve(outcome.value);
    else reader.reject(outcome.error);
    this.#pump();
  }
}
