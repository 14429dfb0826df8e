interface Entry<Value> {
  readonly value: Value;
  readonly size: number;
}

interface Group<Value> {
  /** Least recently used first. */
  readonly entries: Map<string, Entry<Value>>;
  size: number;
}

/**
 * A bounded cache of several groups (tenants). While the cache holds too much, the group that takes most loses its least recently used entry. A
 * group that takes at most its equal part of the cache therefore loses nothing to the others.
 */
export class FairCache<Value> {
  readonly #maxSize: number;
  readonly #groups = new Map<string, Group<Value>>();
  #size = 0;

  /** @param maxSize maximum size of all entries together, in the unit of `set` */
  constructor(maxSize: number) {
    this.#maxSize = maxSize;
  }

  get size(): number {
    return this.#size;
  }

  get(group: string, key: string): Value | undefined {
    const entries = this.#groups.get(group)?.entries;
    const entry = entries?.get(key);
    if (entries === undefined || entry === undefined) return undefined;
    // The reinserted entry is the most recently used one.
    entries.delete(key);
    entries.set(key, entry);
    return entry.value;
  }

  /** Adds an entry, which replaces an earlier one of this key. An entry larger than the cache is not stored, and the earlier one is deleted. */
  set(group: string, key: string, value: Value, size: number): void {
    this.delete(group, key);
    if (size > this.#maxSize) return;
    const target = this.#groups.get(group) ?? { entries: new Map(), size: 0 };
    this.#groups.set(group, target);
    target.entries.set(key, { value, size });
    target.size += size;
    this.#size += size;
    while (this.#size > this.#maxSize) this.#evict();
  }

  delete(group: string, key: string): void {
    const target = this.#groups.get(group);
    const entry = target?.entries.get(key);
    if (target === undefined || entry === undefined) return;
    target.entries.delete(key);
    target.size -= entry.size;
    this.#size -= entry.size;
    if (target.entries.size === 0) this.#groups.delete(group);
  }

  #evict(): void {
    let [name, largest] = ['', 0];
    for (const [group, { size }] of this.#groups) if (size > largest) [name, largest] = [group, size];
    const [oldest] = this.#groups.get(name)?.entries.keys() ?? [];
    if (oldest !== undefined) this.delete(name, oldest);
  }
}
