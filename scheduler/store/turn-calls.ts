/** Options of `TurnCalls`. */
export interface TurnCallsOptions<Item, Answer> {
  /** Share of one call that an item takes, above 0. A call holds items whose shares sum to at most 1, or a single item. */
  readonly size: (item: Item) => number;
  /** Makes one call. Resolves to one function per item, which returns the item's answer or throws its error. */
  readonly call: (items: readonly Item[]) => Promise<readonly (() => Answer)[]>;
}

interface WaitingItem<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Gathers the items that one turn of the event loop sends to Redis into few script calls. A script for many items reads and writes shared
 * data once, and each call has a fixed cost in this process and in Redis. The size of a call is bounded, since all
 * other Redis calls wait for it. Each item gets its own answer; a failed call rejects all of its items.
 */
export class TurnCalls<Item, Answer> {
  readonly #options: TurnCallsOptions<Item, Answer>;
  #waiting: WaitingItem<Item, Answer>[] = [];

  constructor(options: TurnCallsOptions<Item, Answer>) {
    this.#options = options;
  }

  run(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (this.#waiting.length === 1) setImmediate(() => this.#flush());
    });
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    let [start, size] = [0, 0];
    for (const [i, { item }] of waiting.entries()) {
      const itemSize = this.#options.size(item);
      if (i > start && size + itemSize > 1) {
        void this.#call(waiting.slice(start, i));
        [start, size] = [i, 0];
      }
      size += itemSize;
    }
    void this.#call(waiting.slice(start));
  }

  async #call(waiting: readonly WaitingItem<Item, Answer>[]): Promise<void> {
    try {
      const answers = await this.#options.call(waiting.map(({ item }) => item));
      for (const [i, one] of waiting.entries()) settle(one, answers[i]);
    } catch (error) {
      for (const { reject } of waiting) reject(error);
    }
  }
}

function settle<Answer>({ resolve, reject }: WaitingItem<unknown, Answer>, answer: (() => Answer) | undefined): void {
  try {
    if (answer === undefined) throw new Error('The call has no answer for this item.');
    resolve(answer());
  } catch (error) {
    reject(error);
  }
}
