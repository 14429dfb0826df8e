import type { PageStats } from '../protocol/host.ts';
import type { PagePrefix } from './identity.ts';
import type { PageAccount } from './page-accounts.ts';
import type { SwapTicket } from './swap/store.ts';

/** Maximum slots of a page: their flags fit the bits of one number. */
const MAX_PAGE_SIZE = 32;

/** One logical KV page. Filled bits belong to the page; masked bits belong to each mapping of it. */
export interface Page {
  /** Account of the tenant for which the page counts. */
  readonly account: PageAccount;
  /** Frame on the device; -1 while the page has none. Slot `s` is physical slot `frame × pageSize + s`. */
  frame: number;
  /** References from mappings, snapshots and the prefix tree; 0 once the page is gone. */
  references: number;
  /** True when the prefix tree holds one of the references. */
  inTree: boolean;
  /** Bit `s` is set when slot `s` holds a key and a value, or is reserved for a call that is being computed. */
  filled: number;
  /** Position of each filled slot. */
  readonly positions: Uint32Array;
  /** Upper bound on the positions of the filled slots. With it the common causal case need not look at every slot. */
  maxPosition: number;
  /** The tokens from which the keys and values were computed; undefined when these are not a plain text from position 0 on. */
  prefix: PagePrefix | undefined;
  /** Location of the keys and values of a filled page without a frame; undefined for every other page. */
  swapped: SwapTicket | undefined;
}

/** Frames: cached ones are of pages that only the prefix tree holds, owned ones of all other pages. */
export interface PoolCounts extends PageStats {
  /** Pages without a frame; not part of the total. */
  readonly swappedOut: number;
}

/** A fixed pool of frames, and the logical pages with their reference counts. */
export class PagePool {
  readonly pageSize: number;
  /** Number of frames. */
  readonly total: number;
  /** Flags with the bits of all slots of a page set. */
  readonly fullBits: number;
  /** Free frames, as a stack. */
  readonly #freeFrames: number[] = [];
  readonly #dropTicket: (ticket: SwapTicket) => void;
  #cached = 0;
  #owned = 0;
  #swappedOut = 0;

  /** @param dropTicket called when the last holder of a swapped-out page lets it go */
  constructor(pageSize: number, total: number, dropTicket: (ticket: SwapTicket) => void) {
    if (!(pageSize >= 1 && pageSize <= MAX_PAGE_SIZE))
      throw new RangeError(`page size ${pageSize}; 1 to ${MAX_PAGE_SIZE}`);
    this.pageSize = pageSize;
    this.total = total;
    this.fullBits = slotBits(pageSize);
    this.#dropTicket = dropTicket;
    for (let frame = total - 1; frame >= 0; frame--) this.#freeFrames.push(frame);
  }

  get free(): number {
    return this.#freeFrames.length;
  }

  /** Frames of pages that only the prefix tree holds. */
  get cached(): number {
    return this.#cached;
  }

  /** Takes a frame for an empty page with one reference; undefined when no frame is free. */
  take(account: PageAccount): Page | undefined {
    const frame = this.#freeFrames.pop();
    return frame === undefined ? undefined : this.#make(account, frame);
  }

  /** An empty page with one reference and no frame yet. */
  blank(account: PageAccount): Page {
    return this.#make(account, -1);
  }

  retain(page: Page): void {
    if (page.references === 0) throw new Error('a page that is gone cannot be shared');
    this.#uncount(page);
    page.references++;
    this.#count(page);
  }

  release(page: Page): void {
    if (page.references === 0) throw new Error('a page was released twice');
    if (page.references === 1 && page.inTree) throw new Error('another holder released the prefix tree’s reference');
    this.#uncount(page);
    page.references--;
    this.#count(page);
    if (page.references === 0) this.#end(page);
  }

  /** Adds the prefix tree's reference to a page; each page has at most one such reference. */
  adopt(page: Page): void {
    if (page.inTree) throw new Error('a page is in the prefix tree already');
    if (page.references === 0) throw new Error('a page that is gone cannot be cached');
    this.#uncount(page);
    page.references++;
    page.inTree = true;
    this.#count(page);
  }

  /** Undoes `adopt`. */
  abandon(page: Page): void {
    if (!page.inTree) throw new Error('a page is not in the prefix tree');
    this.#uncount(page);
    page.references--;
    page.inTree = false;
    this.#count(page);
    if (page.references === 0) this.#end(page);
  }

  /** Frees the page's frame. The caller has stored the keys and values, if there are any, in `ticket`. */
  swapOut(page: Page, ticket: SwapTicket | undefined): void {
    if (page.frame < 0 || page.references === 0) throw new Error('only a page with a frame can be swapped out');
    this.#uncount(page);
    this.#freeFrames.push(page.frame);
    page.frame = -1;
    page.swapped = ticket;
    this.#count(page);
  }

  /**
   * Gives a swapped-out page a free frame, or that of `donor`, a page that is about to be released. The caller writes the keys and values
   * and drops the former ticket.
   */
  swapIn(page: Page, donor?: Page): void {
    if (page.frame >= 0 || page.references === 0) throw new Error('only a page without a frame can be swapped in');
    const frame = donor ? this.#strip(donor) : this.#freeFrames.pop();
    if (frame === undefined || frame < 0) throw new Error('a page is swapped in without a free frame');
    this.#uncount(page);
    page.frame = frame;
    page.swapped = undefined;
    this.#count(page);
  }

  /** Frames that are free or belong to pages that only the prefix tree holds. */
  get available(): number {
    return this.#freeFrames.length + this.#cached;
  }

  counts(): PoolCounts {
    return {
      free: this.#freeFrames.length,
      cached: this.#cached,
      owned: this.#owned,
      total: this.total,
      swappedOut: this.#swappedOut,
    };
  }

  /** Throws when free + cached + owned is not the total. Cheap enough to check whenever the pool is idle. */
  check(): void {
    const { free, cached, owned, total } = this.counts();
    if (free + cached + owned !== total)
      throw new Error(`pages lost: free ${free} + cached ${cached} + owned ${owned} is not ${total}`);
  }

  #make(account: PageAccount, frame: number): Page {
    const page: Page = {
      account,
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

  /** Takes the frame from a page that is about to be released. */
  #strip(page: Page): number {
    const { frame } = page;
    this.#uncount(page);
    page.frame = -1;
    this.#count(page);
    return frame;
  }

  #end(page: Page): void {
    if (page.frame >= 0) this.#freeFrames.push(page.frame);
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

  #tally(page: Page, change: number): void {
    if (page.references === 0) return;
    const { account } = page;
    if (page.frame < 0) {
      this.#swappedOut += change;
      account.swappedOut += change;
    } else if (isCached(page)) {
      this.#cached += change;
      account.cached += change;
    } else {
      this.#owned += change;
      account.owned += change;
    }
  }
}

/** References other than the prefix tree's. */
export function holders(page: Page): number {
  return page.inTree ? page.references - 1 : page.references;
}

/** True when only the prefix tree holds the page. */
export function isCached(page: Page): boolean {
  return page.inTree && page.references === 1;
}

/** Flags with bits 0 to `count - 1` set. */
export function slotBits(count: number): number {
  return count >= 32 ? 0xffff_ffff : (1 << count) - 1;
}

export function bitCount(bits: number): number {
  let count = 0;
  // Each round clears the lowest bit that is set.
  for (let rest = bits >>> 0; rest !== 0; rest &= rest - 1) count++;
  return count;
}

/** Marks a slot as holding (or reserved for) the key and value of `position`. */
export function fillSlot(page: Page, slot: number, position: number): void {
  page.filled = (page.filled | (1 << slot)) >>> 0;
  page.positions[slot] = position;
  if (position > page.maxPosition) page.maxPosition = position;
}

/** Undoes a reservation: the slot's key and value were not computed. */
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
