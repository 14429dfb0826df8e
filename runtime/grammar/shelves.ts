import { Shares } from '#scheduler/policies/shares.ts';

/** Maximum things of a tenant that stay although nothing uses them. */
const MAX_UNUSED = 16;

interface Entry {
  readonly tenant: string;
  readonly key: string;
  readonly bytes: number;
}

/** The things of one tenant. */
interface Shelf<Thing> {
  readonly byKey: Map<string, Thing>;
  /** Things that nothing uses; the most recently used last. */
  readonly unused: Set<Thing>;
}

/**
 * Compiled grammars of all tenants: each stays while something uses it, and a few of a tenant stay longer, in case they are wanted again. The memory of
 * their sources is bounded, with a fair share for each tenant (`Shares`). A claim that does not fit its tenant's share ends unused things of that
 * tenant, the least recently used first. A claim that does not fit the memory of all ends those of the tenant that holds most: what a tenant holds
 * within its equal part of the memory goes last, and only to a tenant within its part. Pure.
 */
export class Shelves<Thing> {
  readonly #maxBytes: number;
  readonly #shares: Shares;
  readonly #onForgotten: (thing: Thing) => void;
  readonly #entries = new Map<Thing, Entry>();
  readonly #shelves = new Map<string, Shelf<Thing>>();

  /**
   * @param maxBytes bytes of the sources of all tenants
   * @param onForgotten called when a thing has left its shelf
   */
  constructor(maxBytes: number, onForgotten: (thing: Thing) => void) {
    this.#maxBytes = maxBytes;
    this.#shares = new Shares(maxBytes);
    this.#onForgotten = onForgotten;
  }

  get(tenant: string, key: string): Thing | undefined {
    return this.#shelves.get(tenant)?.byKey.get(key);
  }

  /** Bytes of the sources of a tenant's things. */
  bytesOf(tenant: string): number {
    return this.#shares.heldBy(tenant);
  }

  /** Keeps a thing that is in use; `get` then finds it in place of an earlier one. False when its source does not fit. */
  add(tenant: string, key: string, bytes: number, thing: Thing): boolean {
    if (!this.#takeRoom(tenant, bytes)) return false;
    this.#entries.set(thing, { tenant, key, bytes });
    this.#shelf(tenant).byKey.set(key, thing);
    return true;
  }

  /** Something uses the thing again. */
  use(thing: Thing): void {
    const entry = this.#entries.get(thing);
    if (entry) this.#shelf(entry.tenant).unused.delete(thing);
  }

  /** Nothing uses the thing any more. With `isKept`, it stays as one of the last few. */
  release(thing: Thing, isKept: boolean): void {
    const entry = this.#entries.get(thing);
    if (!entry) return;
    this.#shelf(entry.tenant).unused.add(thing);
    if (isKept) this.trim(entry.tenant, MAX_UNUSED);
    else this.#forget(thing);
  }

  /** Forgets the tenant's unused things, except the last `keptCount` ones. */
  trim(tenant: string, keptCount: number): void {
    const unused = this.#shelves.get(tenant)?.unused ?? new Set<Thing>();
    for (const thing of unused) {
      if (unused.size <= keptCount) return;
      this.#forget(thing);
    }
  }

  clear(): void {
    this.#shelves.clear();
    this.#entries.clear();
  }

  #shelf(tenant: string): Shelf<Thing> {
    const shelf = this.#shelves.get(tenant) ?? { byKey: new Map(), unused: new Set() };
    this.#shelves.set(tenant, shelf);
    return shelf;
  }

  #takeRoom(tenant: string, bytes: number): boolean {
    while (!this.#shares.enter(tenant, bytes)) {
      const victim = this.#shares.isOwn(tenant, bytes) ? this.#victim(tenant, bytes) : this.#oldest(tenant);
      if (victim === undefined) return false;
      this.#forget(victim);
    }
    return true;
  }

  /** The unused thing that goes for a claim when the memory of all is full. */
  #victim(claimant: string, bytes: number): Thing | undefined {
    let largest = '';
    for (const [tenant, { unused }] of this.#shelves)
      if (unused.size > 0 && this.bytesOf(tenant) > this.bytesOf(largest)) largest = tenant;
    const tenants = this.#shares.tenants + (this.bytesOf(claimant) === 0 ? 1 : 0);
    const equalPart = this.#maxBytes / tenants;
    if (this.bytesOf(largest) > equalPart) return this.#oldest(largest);
    const own = this.#oldest(claimant);
    if (own !== undefined || this.bytesOf(claimant) + bytes > equalPart) return own;
    return this.#oldest(largest);
  }

  #oldest(tenant: string): Thing | undefined {
    const [oldest] = this.#shelves.get(tenant)?.unused ?? [];
    return oldest;
  }

  #forget(thing: Thing): void {
    const entry = this.#entries.get(thing);
    if (!entry) return;
    const { tenant, key, bytes } = entry;
    const { byKey, unused } = this.#shelf(tenant);
    this.#entries.delete(thing);
    unused.delete(thing);
    this.#shares.leave(tenant, bytes);
    // The key of a failed grammar may belong to its replacement.
    if (byKey.get(key) === thing) byKey.delete(key);
    if (byKey.size === 0 && unused.size === 0) this.#shelves.delete(tenant);
    this.#onForgotten(thing);
  }
}
