import type { Feed, OpenFeed } from '#scheduler/invocations/follower.ts';

/** A source that gives items when it is asked for them, such as an iterator. */
export interface PulledSource<T> {
  /** Waits for the next items. Resolves to at least one item, or to null after the last one. Calls do not overlap. */
  next(): Promise<T[] | null>;
  /** Stops the source. A pending `next` may stay pending. */
  close(): void;
}

/** Makes a feed of a source. The feed asks the source only when its reader has taken all earlier items. */
export function pulledFeed<T>(open: () => PulledSource<T>): OpenFeed<T> {
  return (ready) => new PulledFeed(open(), ready);
}

/** Makes a feed of an iterable's items. */
export function feedOf<T>(iterable: AsyncIterable<T>): OpenFeed<T> {
  return pulledFeed(() => {
    const iterator = iterable[Symbol.asyncIterator]();
    return {
      async next() {
        const { done, value } = await iterator.next();
        return done === true ? null : [value];
      },
      close() {
        // Do not wait for the return: the iterable may be waiting for its next item, and its own signal ends that wait.
        iterator.return?.().catch(() => undefined);
      },
    };
  });
}

class PulledFeed<T> implements Feed<T> {
  readonly #source: PulledSource<T>;
  readonly #ready: () => void;
  #items: T[] | null = [];
  #failure: { readonly error: unknown } | null = null;
  #isAsking = false;
  #isClosed = false;

  constructor(source: PulledSource<T>, ready: () => void) {
    this.#source = source;
    this.#ready = ready;
  }

  take(): T[] | null {
    if (this.#failure) throw this.#failure.error;
    const items = this.#items;
    if (items === null || this.#isClosed) return null;
    this.#items = [];
    if (items.length === 0) void this.#ask();
    return items;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#source.close();
  }

  async #ask(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    try {
      this.#items = await this.#source.next();
    } catch (error) {
      this.#failure = { error };
    }
    this.#isAsking = false;
    if (!this.#isClosed) this.#ready();
  }
}
