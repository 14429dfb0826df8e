import type { PagePrefix } from './identity.ts';
import type { SwapTicket } from './swap/store.ts';

/** Slots that a page may have: their flags fit the bits of one number. */
export const MAX_PAGE_SIZE = 32;

/** One logical KV page. What is filled belongs to the page; what is masked belongs to each mapping of it. */
export interface Page {
  /** Its place on the device, -1 while it has none: slot `s` is physical slot `frame × pageSize + s`. */
  frame: number;
  /** Mappings, snapshots and the prefix tree that hold it; 0 when it is gone. */
  references: number;
  /** Whether one of the references is the prefix tree's. */
  inTree: boolean;
  /** Bit `s` is set when slot `s` holds a key and a value, or is reserved for those of a call that is being computed. */
  filled: number;
  /** Position of each filled slot. */
  readonly positions: Uint32Array;
  /** At least the largest position of a filled slot, so that the common causal case needs no look at every slot. */
  maxPosition: number;
  /** The tokens that its keys and values were computed from, when they are a prefix and nothing else. */
  prefix: PagePrefix | undefined;
  /** Where its keys and values are while it has no frame; undefined when it is empty. */
  swapped: SwapTicket | undefined;
}

export interface PoolCounts {
  readonly free: number;
  /** Frames of pages that only the prefix tree holds. */
  readonly cached: number;
  /** Frames of all other pages. */
  readonly owned: number;
  readonly total: number;
  /** Pages without a frame; apart from the total. */
  readonly swappedOut: number;
}

/** A fixed pool of frames, and the logical pages with their reference counts. */
export class PagePool {
  readonly pageSize: number;
  /** Frames. */
  readonly total: number;
  /** Bits of all slots of a page. */
  readonly fullBits: number;
  /** Free frames, as a stack. */
  readonly #free: number[] = [];
  readonly #dropTicket: (ticket: SwapTicket) => void;
  #cached = 0;
  #owned = 0;
  #swappedOut = 0;

  /** `dropTicket` is told when the last holder of a swapped-out page lets it go. */
  constructor(pageSize: number, total: number, dropTicket: (ticket: SwapTicket) => void) {
    if (!(pageSize >= 1 && pageSize <= MAX_PAGE_SIZE))
      throw new RangeError(`page size ${pageSize}; 1 to ${MAX_PAGE_SIZE}`);
    this.pageSize = pageSize;
    this.total = total;
    this.fullBits = slotBits(pageSize);
    this.#dropTicket = dropTicket;
    for (let frame = total - 1; frame >= 0; frame--) this.#free.push(frame);
  }

  get free(): number {
    return this.#free.length;
  }

  /** Frames of pages that only the prefix tree holds. */
  get cached(): number {
    return this.#cached;
  }

  /** An empty page with one reference, or undefined when no frame is free. */
  take(): Page | undefined {
    const frame = this.#free.pop();
    return frame === undefined ? undefined : this.#make(frame);
  }

  /** An empty page with one reference and no frame yet. */
  blank(): Page {
    return this.#make(-1);
  }

  retain(page: Page): void {
    if (page.references === 0) throw new Error('a page that is gone cannot be shared');
    this.#uncount(page);
    page.references++;
    this.#count(page);
  }

  release(page: Page): void {
    if (page.references === 0) throw new Error('a page was released twice');
    if (page.references === 1 && page.inTree)
      throw new Error('the prefix tree’s reference was released by somebody else');
    this.#uncount(page);
    page.references--;
    this.#count(page);
    if (page.references === 0) this.#end(page);
  }

  /** The prefix tree's reference to a page; it has one at most. */
  adopt(page: Page): void {
    if (page.inTree) throw new Error('a page is in the prefix tree already');
    if (page.references === 0) throw new Error('a page that is gone cannot be cached');
    this.#uncount(page);
    page.references++;
    page.inTree = true;
    this.#count(page);
  }

  /** Ends what `adopt` began. */
  abandon(page: Page): void {
    if (!page.inTree) throw new Error('a page is not in the prefix tree');
    this.#uncount(page);
    page.references--;
    page.inTree = false;
    this.#count(page);
    if (page.references === 0) this.#end(page);
  }

  /** The page's keys and values, if it has any, are in `ticket` now; its frame is free. */
  swapOut(page: Page, ticket: SwapTicket | undefined): void {
    if (page.frame < 0 || page.references === 0) throw new Error('only a page with a frame can be swapped out');
    this.#uncount(page);
    this.#free.push(page.frame);
    page.frame = -1;
    page.swapped = ticket;
    this.#count(page);
  }

  /**
   * Gives a swapped-out page a free frame, or that of `donor`, a page that is about to be released. Keys and values are the caller's to
   * write, and the former ticket to drop.
   */
  swapIn(page: Page, donor?: Page): void {
    if (page.frame >= 0 || page.references === 0) throw new Error('only a page without a frame can be swapped in');
    const frame = donor ? this.#strip(donor) : this.#free.pop();
    if (frame === undefined || frame < 0) throw new Error('a page is swapped in without a free frame');
    this.#uncount(page);
    page.frame = frame;
    page.swapped = undefined;
    this.#count(page);
  }

  /** Frames that are free, or those of pages that only the prefix tree holds. */
  get available(): number {
    return this.#free.length + this.#cached;
  }

  counts(): PoolCounts {
    return {
      free: this.#free.length,
      cached: this.#cached,
      owned: this.#owned,
      total: this.total,
      swappedOut: this.#swappedOut,
    };
  }

  /** Throws when free + cached + owned is not the total: the invariant of the pool, cheap enough to check whenever it is idle. */
  check(): void {
    const { free, cached, owned, total } = this.counts();
    if (free + cached + owned !== total)
      throw new Error(`pages lost: free ${free} + cached ${cached} + owned ${owned} is not ${total}`);
  }

  #make(frame: number): Page {
    const page: Page = {
      frame,
      references: 1,
      inTree: false,
      filled: 0,
      positions: new Uint32Array(this.pageSize),
      maxPosition: 0,
      prefix: undefined,
      swapped: undefined,
    };
    this.#count(page);
    return page;
  }

  #strip(page: Page): number {
    const { frame } = page;
    this.#uncount(page);
    page.frame = -1;
    this.#count(page);
    return frame;
  }

  #end(page: Page): void {
    if (page.frame >= 0) this.#free.push(page.frame);
    else if (page.swapped !== undefined) this.#dropTicket(page.swapped);
    page.frame = -1;
    page.swapped = undefined;
    page.filled = 0;
    page.prefix = undefined;
  }

  #count(page: Page): void {
    this.#tally(page, 1);
  }

  #uncount(page: Page): void {
    this.#tally(page, -1);
  }

  #tally(page: Page, by: number): void {
    if (page.references === 0) return;
    if (page.frame < 0) this.#swappedOut += by;
    else if (isCached(page)) this.#cached += by;
    else this.#owned += by;
  }
}

/** References that are not the prefix tree's. */
export function holders(page: Page): number {
  return page.inTree ? page.references - 1 : page.references;
}

/** Whether only the prefix tree holds it. */
export function isCached(page: Page): boolean {
  return page.inTree && page.references === 1;
}

/** Bits 0 to `count - 1`. */
export function slotBits(count: number): number {
  return count >= 32 ? 0xffff_ffff : (1 << count) - 1;
}

/** Set bits of a page's flags. */
export function bitCount(bits: number): number {
  let count = 0;
  for (let left = bits >>> 0; left !== 0; left &= left - 1) count++;
  return count;
}

/** Marks a slot as holding (or reserved for) the key and value of `position`. */
export function fillSlot(page: Page, slot: number, position: number): void {
  page.filled = (page.filled | (1 << slot)) >>> 0;
  page.positions[slot] = position;
  if (position > page.maxPosition) page.maxPosition = position;
}

/** Takes back a reservation: what the slot should have held was not computed. */
export function unfillSlot(page: Page, slot: number): void {
  page.filled = (page.filled & ~(1 << slot)) >>> 0;
  page.maxPosition = Math.max(0, largestPosition(page));
  if (page.prefix && page.prefix.known > slot) page.prefix = page.prefix.first(slot);
}

/** The largest position of a filled slot; -1 when none is filled. */
export function largestPosition(page: Page): number {
  let largest = -1;
  for (let slot = 0; slot < page.positions.length; slot++) {
    if (page.filled & (1 << slot)) largest = Math.max(largest, page.positions[slot] as number);
  }
  return largest;
}
