/** Slots that a page may have: their flags fit the bits of one number. */
export const MAX_PAGE_SIZE = 32;

/** One physical KV page. What is filled belongs to the page; what is masked belongs to each mapping of it. */
export interface Page {
  /** Its place in the pool: slot `s` of it is physical slot `index × pageSize + s`. */
  readonly index: number;
  /** Mappings that hold it; 0 when free. */
  references: number;
  /** Bit `s` is set when slot `s` holds a key and a value. */
  filled: number;
  /** Position of each filled slot. */
  readonly positions: Uint32Array;
  /** At least the largest position of a filled slot, so that the common causal case needs no look at every slot. */
  maxPosition: number;
}

export interface PoolCounts {
  readonly free: number;
  readonly cached: number;
  readonly owned: number;
  readonly swapped: number;
  readonly total: number;
}

/** A fixed pool of pages with reference counts. */
export class PagePool {
  readonly pageSize: number;
  readonly total: number;
  /** Bits of all slots of a page. */
  readonly fullBits: number;
  #free: Page[] = [];
  #owned = 0;

  constructor(pageSize: number, total: number) {
    if (!(pageSize >= 1 && pageSize <= MAX_PAGE_SIZE))
      throw new RangeError(`page size ${pageSize}; 1 to ${MAX_PAGE_SIZE}`);
    this.pageSize = pageSize;
    this.total = total;
    this.fullBits = slotBits(pageSize);
    for (let index = total - 1; index >= 0; index--) {
      this.#free.push({ index, references: 0, filled: 0, positions: new Uint32Array(pageSize), maxPosition: 0 });
    }
  }

  get free(): number {
    return this.#free.length;
  }

  /** An empty page with one reference, or undefined when none is free. */
  take(): Page | undefined {
    const page = this.#free.pop();
    if (!page) return undefined;
    page.references = 1;
    page.filled = 0;
    page.maxPosition = 0;
    this.#owned++;
    return page;
  }

  retain(page: Page): void {
    if (page.references === 0) throw new Error(`page ${page.index} is free and cannot be shared`);
    page.references++;
  }

  release(page: Page): void {
    if (page.references === 0) throw new Error(`page ${page.index} was released twice`);
    page.references--;
    if (page.references > 0) return;
    this.#owned--;
    this.#free.push(page);
  }

  counts(): PoolCounts {
    return { free: this.#free.length, cached: 0, owned: this.#owned, swapped: 0, total: this.total };
  }

  /** Throws when free + cached + owned + swapped is not the total: the invariant of the pool, cheap enough to check whenever it is idle. */
  check(): void {
    const { free, cached, owned, swapped, total } = this.counts();
    if (free + cached + owned + swapped !== total) {
      throw new Error(
        `pages lost: free ${free} + cached ${cached} + owned ${owned} + swapped ${swapped} is not ${total}`,
      );
    }
  }
}

/** Bits 0 to `count - 1`. */
export function slotBits(count: number): number {
  return count >= 32 ? 0xffff_ffff : (1 << count) - 1;
}

/** Marks a slot as holding the key and value of `position`. */
export function fillSlot(page: Page, slot: number, position: number): void {
  page.filled = (page.filled | (1 << slot)) >>> 0;
  page.positions[slot] = position;
  if (position > page.maxPosition) page.maxPosition = position;
}
