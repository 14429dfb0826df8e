/** A bounded cache of values made from texts: the schemas of a tenant repeat their strings, patterns and bounds. */
export class BoundedCache<T> {
  readonly #known = new Map<string, T>();
  readonly #maxSize: number;
  readonly #sizeOf: (made: T) => number;
  #size = 0;

  /** @param maxSize largest sum of the sizes of keys and values; beyond it, the cache forgets everything */
  constructor(maxSize: number, sizeOf: (made: T) => number = () => 1) {
    this.#maxSize = maxSize;
    this.#sizeOf = sizeOf;
  }

  get(key: string): T | undefined {
    return this.#known.get(key);
  }

  set(key: string, made: T): void {
    const size = this.#entrySize(key, made);
    const replaced = this.#known.get(key);
    if (replaced !== undefined) this.#size -= this.#entrySize(key, replaced);
    if (this.#size + size > this.#maxSize) {
      this.#known.clear();
      this.#size = 0;
    }
    this.#size += size;
    this.#known.set(key, made);
  }

  #entrySize(key: string, made: T): number {
    return key.length + this.#sizeOf(made);
  }

  /** @throws what `make` throws */
  getOrMake(key: string, make: () => T): T {
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const made = make();
    this.set(key, made);
    return made;
  }
}
