import type { Shortfall } from '../preemption.ts';

/** A shortfall that computes `missing` from scratch each time. It throws when a holder leaves twice, or stays without having left. */
export class CountedShortfall<H> implements Shortfall<H> {
  readonly #missing: (departed: readonly H[]) => number;
  readonly #departed = new Set<H>();
  /** Number of calls of `leave` and `stay`. */
  changes = 0;

  /** @param missing computes the missing pages from the holders that have left */
  constructor(missing: (departed: readonly H[]) => number) {
    this.#missing = missing;
  }

  get missing(): number {
    return this.#missing([...this.#departed]);
  }

  leave(holder: H): void {
    if (this.#departed.has(holder)) throw new Error('a holder left twice');
    this.#departed.add(holder);
    this.changes++;
  }

  stay(holder: H): void {
    if (!this.#departed.delete(holder)) throw new Error('a holder stayed that had not left');
    this.changes++;
  }
}
