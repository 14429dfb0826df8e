/**
 * The seeded random numbers (mulberry32) of tests, fuzzers and benchmarks, with the choices that they make. Equal seeds give equal numbers on every
 * machine. The random weights of `gpu-host/models/testing/random-model.ts` and the random steps of backends draw from splitmix32 instead, because recorded
 * figures depend on its numbers.
 */
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

  /** A number from 0 (included) to 1 (excluded). */
  next(): number {
    return this.u32() / 2 ** 32;
  }

  /** A whole number from 0 to `count` - 1. */
  below(count: number): number {
    return Math.floor(this.next() * count);
  }

  /** A whole number from `from` to `to`, both included. */
  integer(from: number, to: number): number {
    return from + this.below(to - from + 1);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
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

  /** A random permutation of the list. */
  shuffled<T>(list: readonly T[]): T[] {
    const all = [...list];
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [all[i], all[j]] = [all[j] as T, all[i] as T];
    }
    return all;
  }
}

/** Numbers from 0 (included) to 1 (excluded), the same for the same seed. */
export function randomFrom(seed: number): () => number {
  const random = new Random(seed);
  return () => random.next();
}

/** Whole numbers from 0 to `below` - 1, the same for the same seed. */
export function seeded(seed: number): (below: number) => number {
  const random = new Random(seed);
  return (below) => random.below(below);
}

/** A vector of normally distributed values (Box and Muller, 1958). */
export function randomVector(dimensions: number, random: () => number): Float32Array {
  return Float32Array.from(
    { length: dimensions },
    () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()),
  );
}
