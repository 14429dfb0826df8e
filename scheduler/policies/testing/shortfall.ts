import type { Shortfall } from '../victims.ts';

/** A shortfall that is counted anew for each question. It fails when a holder leaves twice, or stays without having left. */
export class CountedShortfall<H> implements Shortfall<H> {
  readonly #missing: (gone: readonly H[]) => number;
  readonly #gone = new Set<H>();
  /** Changes so far. */
  changes = 0;

  constructor(missing: (gone: readonly H[]) => number) {
    this.#missing = missing;
  }

  get missing(): number {
    return this.#missing([...this.#gone]);
  }

  leave(holder: H): void {
    if (this.#gone.has(holder)) throw new Error('a holder left twice');
    this.#gone.add(holder);
    this.changes++;
  }

  stay(holder: H): void {
    if (!this.#gone.delete(holder)) throw new Error('a holder stayed that had not left');
    this.changes++;
  }
}
