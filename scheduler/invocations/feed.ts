/**
 * A source of items for one reader. The source calls the reader's `ready` when items come, and holds a bounded number of items until the
 * reader takes them.
 */
export interface Feed<T> {
  /**
   * The next items in order, for the reader to keep; null after the last one. An empty list means that no items wait: the source calls `ready`
   * once some wait, or once the feed ends. A reader that got items calls again once it can take more: the source may wait for this call. Once the
   * reader has all items of a source that failed, the next call throws the failure. The first call starts the source.
   */
  take(): T[] | null;
  /** Stops the source, which then no longer calls `ready`. Safe to call more than once. */
  close(): void;
}

/** Opens a feed. @param ready called when `take` has something new to answer; never during `take` itself */
export type OpenFeed<T> = (ready: () => void) => Feed<T>;

/** The items of a feed one by one, for a reader that waits for them. Ends with the feed, or when the signal aborts. */
export class Items<T> implements AsyncIterableIterator<T, void, undefined> {
  readonly #feed: Feed<T>;
  readonly #signal: AbortSignal | undefined;
  #items: T[] = [];
  #isOver = false;
  #settle: (() => void) | undefined;
  readonly #end = () => this.#close();

  constructor(open: OpenFeed<T>, signal?: AbortSignal) {
    this.#feed = open(() => this.#settle?.());
    this.#signal = signal;
    if (signal?.aborted) this.#close();
    else signal?.addEventListener('abort', this.#end, { once: true });
  }

  /** Calls must not overlap. */
  next(): Promise<IteratorResult<T, void>> {
    return new Promise((resolve, reject) => {
      const settle = () => {
        this.#settle = undefined;
        try {
          const result = this.#take();
          if (result) resolve(result);
          else this.#settle = settle;
        } catch (error) {
          reject(error);
          this.#close();
        }
      };
      settle();
    });
  }

  async return(): Promise<IteratorResult<T, void>> {
    this.#close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next item, or the end of the feed; undefined while no item waits. */
  #take(): IteratorResult<T, void> | undefined {
    if (this.#items.length === 0 && !this.#isOver) {
      const items = this.#feed.take();
      if (items === null) this.#close();
      else this.#items = items;
    }
    if (this.#isOver) return { done: true, value: undefined };
    const [value] = this.#items.splice(0, 1);
    return value === undefined ? undefined : { done: false, value };
  }

  #close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#items = [];
    this.#signal?.removeEventListener('abort', this.#end);
    this.#feed.close();
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.();
  }
}
