/** Seeded random numbers (mulberry32). */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** A whole number from 0 to `sides` - 1. */
  roll(sides: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * sides);
  }

  /** A random permutation of the list. */
  shuffled<T>(list: readonly T[]): T[] {
    const all = [...list];
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.roll(i + 1);
      [all[i], all[j]] = [all[j] as T, all[i] as T];
    }
    return all;
  }
}
