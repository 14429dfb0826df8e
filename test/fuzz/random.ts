/** Seeded random numbers (mulberry32) and the choices that a fuzzer makes with them. Equal seeds give equal choices. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A separate generator for part `index` of the work. */
  static of(seed: number, index: number): Random {
    const random = new Random((seed ^ Math.imul(index + 1, 0x9e37_79b1)) >>> 0);
    random.u32();
    return random;
  }

  u32(): number {
    this.#state = (this.#state + 0x6d2b_79f5) >>> 0;
    let word = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61);
    return (word ^ (word >>> 14)) >>> 0;
  }

  /** A whole number from 0 to `count - 1`. */
  below(count: number): number {
    return Math.floor((this.u32() / 0x1_0000_0000) * count);
  }

  /** True with a probability of 1 in `times`. */
  once(times: number): boolean {
    return this.below(times) === 0;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  list<T>(length: number, make: () => T): T[] {
    return Array.from({ length }, make);
  }
}
