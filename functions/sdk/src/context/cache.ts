import { InferletError } from '../errors.ts';
import { allocate, attempt, forward, type Queue, settle } from '../raw.ts';
import {
  gatherMasks,
  maskSlots,
  pagesFor,
  planForget,
  planTruncate,
  planWrite,
  range,
  slotOfForgotten,
} from './pages.ts';

export const UNKNOWN_BEGINNING =
  'This context was opened without its tokens, so its beginning cannot change: open it with its tokens.';

/** The state of a cache. Token i is the i-th token of the cache's sequence. */
export interface CacheState {
  readonly pages: readonly number[];
  /** Slots of each page that this inferlet has hidden: bit 0 is slot 0. */
  readonly masks: readonly number[];
  /** Number of leading pages that were opened (imported). Only the device knows which of their slots are hidden; a new mask would show those. */
  readonly foreign: number;
  /** Number of tokens whose keys and values are in the pages, or will be when the issued calls end. */
  readonly cached: number;
  /** Position of the first token. Tokens before it were imported, and their ids are not known. */
  readonly base: number;
  /** Token i has slot `i + skew`: imported slots precede token 0 (positive skew), and freed slots are gone (negative skew). */
  readonly skew: number;
  /** Number of imported slots that are empty. */
  readonly empty: number;
  /** Tokens before this one may be gone from the pages. A cut before it recomputes the whole sequence. */
  readonly floor: number;
  /** Tokens before this one cannot be recomputed, because they did not come from token ids (such as images). */
  readonly sealed: number;
  /** Number of times that positions were renumbered, so that tokens may reuse earlier positions. */
  readonly compactions: number;
}

const EMPTY: CacheState = {
  pages: [],
  masks: [],
  foreign: 0,
  cached: 0,
  base: 0,
  skew: 0,
  empty: 0,
  floor: 0,
  sealed: 0,
  compactions: 0,
};

/** Pages that a call reads (`inPages`), and pages to which it appends (`outPages`). */
export interface Access {
  readonly inPages: number[];
  readonly outPages: number[];
}

/** The KV pages of a sequence: filled without gaps, freed when cut off, shared copy-on-write. Issues calls without awaiting them. */
export class Cache {
  readonly #queue: Queue;
  readonly #pageSize: number;
  #pages: number[];
  #masks: number[];
  #foreign: number;
  #cached: number;
  #base: number;
  #skew: number;
  #empty: number;
  #floor: number;
  #sealed: number;
  #compactions: number;

  constructor(queue: Queue, pageSize: number, state: CacheState = EMPTY) {
    this.#queue = queue;
    this.#pageSize = pageSize;
    this.#pages = state.pages.slice();
    this.#masks = state.masks.slice();
    this.#foreign = state.foreign;
    this.#cached = state.cached;
    this.#base = state.base;
    this.#skew = state.skew;
    this.#empty = state.empty;
    this.#floor = state.floor;
    this.#sealed = state.sealed;
    this.#compactions = state.compactions;
  }

  get cached(): number {
    return this.#cached;
  }

  get base(): number {
    return this.#base;
  }

  get floor(): number {
    return this.#floor;
  }

  get sealed(): number {
    return this.#sealed;
  }

  get compactions(): number {
    return this.#compactions;
  }

  /** Number of filled slots, with imported and hidden ones. Each row of an attention mask begins with their keys. */
  get filled(): number {
    return this.#cached + this.#skew - this.#empty;
  }

  /** Pages with at least one filled slot. */
  get filledPages(): number[] {
    return this.#pages.slice(0, pagesFor(this.#cached + this.#skew, this.#pageSize));
  }

  /** Slot of a cached token, counted over all pages; -1 for a token whose page is gone or may be gone. */
  slotOf(token: number): number {
    if (token >= this.#floor) return token + this.#skew;
    // A cache with a `base` has opened pages before its first token. Some of them may have been freed, so the slot is not known.
    return this.#base === 0 ? slotOfForgotten(token, this.#floor, this.#skew, this.#pageSize) : -1;
  }

  /** Pages for a call that reads all cached tokens, with room for `count` more. */
  access(count: number): Access {
    const plan = planWrite(this.#cached + this.#skew, count, this.#pages.length, this.#pageSize);
    if (plan.allocate > 0) this.#pages.push(...attempt(() => allocate.allocatePages(this.#queue, plan.allocate)));
    return {
      inPages: this.#pages.slice(0, plan.readEnd),
      outPages: count > 0 ? this.#pages.slice(plan.writeStart, plan.writeEnd) : [],
    };
  }

  /** All pages, with room for `count` more tokens. */
  extend(count: number): number[] {
    this.access(count);
    return this.#pages.slice(0, pagesFor(this.#cached + this.#skew + count, this.#pageSize));
  }

  /** Counts `count` more tokens as cached, after issuing the call that writes them. */
  advance(count: number): void {
    this.#cached += count;
  }

  /** Marks the first `count` tokens as impossible to recompute, and no others. */
  seal(count: number): void {
    this.#sealed = count;
  }

  /**
   * Drops cached tokens from `kept` on. Frees the pages after the cut and copies the page at the cut, because single slots cannot be freed.
   * Also needed when the device may have written further than `cached`.
   */
  cut(kept: number): void {
    if (kept < this.#sealed || (kept < this.#floor && this.#sealed > 0)) {
      throw new InferletError('invalid-argument', SEALED);
    }
    if (kept < this.#floor) {
      if (this.#base > 0) throw new InferletError('invalid-argument', UNKNOWN_BEGINNING);
      this.clear();
      return;
    }
    const { keep, copySlots } = planTruncate(kept + this.#skew, this.#pageSize);
    const rest = this.#pages.slice(keep);
    const source = rest[0];
    // Allocate first: if no page is available, this throws before any change.
    const fresh = copySlots > 0 && source !== undefined ? attempt(() => allocate.allocatePages(this.#queue, 1)) : [];
    this.#cached = kept;
    if (source === undefined) return;
    this.#pages.length = keep;
    this.#foreign = Math.min(this.#foreign, keep + fresh.length);
    this.#masks.length = Math.min(this.#masks.length, keep + fresh.length);
    if (this.#masks.length > keep) this.#masks[keep] = (this.#masks[keep] ?? 0) & ((1 << copySlots) - 1);
    for (const page of fresh) allocate.copySlots(this.#queue, source, 0, page, 0, copySlots, 0);
    this.#pages.push(...fresh);
    allocate.freePages(this.#queue, rest);
  }

  /** Hides tokens `[from, to)` from all later computation, or shows them again. All of them must be cached. */
  mask(from: number, to: number, hidden: boolean): void {
    const firstMaskable = this.#foreign * this.#pageSize - this.#skew;
    if (from < to && from < firstMaskable) throw new InferletError('invalid-argument', OPENED_MASKS);
    if (!(from >= this.#floor && from <= to && to <= this.#cached)) {
      const positions = `[${this.#base + this.#floor}, ${this.#base + this.#cached})`;
      throw new InferletError('invalid-argument', `Only tokens at positions ${positions} can be hidden or shown.`);
    }
    for (const page of maskSlots(this.#masks, from + this.#skew, to + this.#skew, hidden, this.#pageSize)) {
      this.#applyMask(page);
    }
  }

  /**
   * Drops the cached tokens `[from, to)` for good and frees the pages that hold nothing else. A later call with a larger `to` continues
   * from the earlier end. An opened page can only be dropped as a whole: its tokens stay in sight until all of them are dropped.
   */
  forget(from: number, to: number): void {
    const pageSize = this.#pageSize;
    const start = Math.max(from, this.#floor);
    if (to <= start) return;
    const { first, count, masked, end } = planForget(this.#masks, start + this.#skew, to + this.#skew, pageSize);
    for (const page of masked) if (page >= this.#foreign) this.#applyMask(page);
    this.#floor = end - this.#skew;
    if (count === 0) return;
    allocate.freePages(this.#queue, this.#pages.splice(first, count));
    this.#masks.splice(first, count);
    this.#foreign -= Math.max(0, Math.min(this.#foreign, first + count) - first);
    this.#skew -= count * pageSize;
  }

  /** Keeps only the cached tokens at `indices`, which become the whole text. Tokens after a gap move up, with their keys, to close the gap. */
  gather(indices: Uint32Array): void {
    if (this.#base > 0 || this.#floor > 0) {
      throw new InferletError(
        'invalid-argument',
        'A context that was opened without its tokens, or whose window has slid, cannot be compacted: its first tokens are unknown or gone.',
      );
    }
    const pageSize = this.#pageSize;
    const fresh = attempt(() => allocate.allocatePages(this.#queue, pagesFor(indices.length, pageSize)));
    allocate.copyTokens(this.#queue, this.#pages, indices, fresh, range(0, indices.length));
    allocate.freePages(this.#queue, this.#pages);
    this.#pages = fresh.slice();
    // The device keeps hidden slots hidden when it moves them.
    this.#masks = gatherMasks(this.#masks, indices, pageSize);
    const foreign = this.#foreign * pageSize;
    this.#foreign = pagesFor(indices.filter((slot) => slot < foreign).length, pageSize);
    this.#sealed = indices.filter((token) => token < this.#sealed).length;
    this.#cached = indices.length;
    this.#compactions++;
  }

  /** Appends tokens `[from, to)` of `other`, with keys rotated to the next positions. Its pages must hold all of them, with no write under way. */
  join(other: CacheState, from: number, to: number): void {
    const pageSize = this.#pageSize;
    const count = to - from;
    if (count <= 0) return;
    const { outPages } = this.access(count);
    const start = this.#cached + this.#skew;
    allocate.copyTokens(
      this.#queue,
      other.pages,
      range(from, count),
      outPages,
      range(this.#base + this.#cached, count),
    );
    const moved = gatherMasks(other.masks, range(from, count), pageSize);
    for (let i = 0; i < count; i++) {
      const hidden = (((moved[Math.floor(i / pageSize)] ?? 0) >>> (i % pageSize)) & 1) === 1;
      if (hidden) maskSlots(this.#masks, start + i, start + i + 1, true, pageSize);
    }
    // Only the device knows which slots of opened pages are hidden, so the pages that receive such slots count as opened.
    const opened = Math.min(count, other.foreign * pageSize - from);
    if (opened > 0) this.#foreign = pagesFor(start + opened, pageSize);
    this.#cached += count;
    if (other.sealed > from) this.#sealed = this.#cached - (to - Math.min(other.sealed, to));
  }

  /** The same state under new page addresses, copy-on-write. */
  share(): CacheState {
    const source = this.filledPages;
    const pages = source.length > 0 ? attempt(() => allocate.sharePages(this.#queue, source)) : [];
    return {
      pages,
      masks: this.#masks.slice(0, pages.length),
      foreign: Math.min(this.#foreign, pages.length),
      cached: this.#cached,
      base: this.#base,
      skew: this.#skew,
      empty: this.#empty,
      floor: this.#floor,
      sealed: this.#sealed,
      compactions: this.#compactions,
    };
  }

  /** Fills an empty cache with the pages of an export. `count` is the number of its tokens if their ids are known, else undefined. */
  async open(name: string, count: number | undefined): Promise<void> {
    const { pages, tokens: slots, nextPosition } = await settle(allocate.importPages(this.#queue, name));
    const pageSize = this.#pageSize;
    if (count === undefined) {
      this.adopt(pages, slots, nextPosition);
      return;
    }
    this.#pages = pages.slice();
    this.#foreign = pages.length;
    const whole = pagesFor(slots, pageSize) === pages.length;
    if (!whole || count !== slots || nextPosition !== slots) {
      const why =
        count === slots
          ? 'has gaps, so that the positions of its tokens do not follow from the token ids'
          : `holds ${slots} tokens, not the ${count} that were given`;
      throw new InferletError('invalid-argument', `"${name}" ${why}.`);
    }
    this.#cached = slots;
  }

  /**
   * Replaces the content of this cache by `pages`, whose addresses must belong to this cache alone. Their `slots` filled slots hold tokens with
   * unknown ids. The first new token gets position `nextPosition`.
   */
  adopt(pages: readonly number[], slots: number, nextPosition: number): void {
    // New tokens begin in a new page, so that they can be hidden. A write to a shared page would copy that page anyway.
    this.#pages = pages.slice();
    this.#foreign = pages.length;
    this.#base = nextPosition;
    this.#skew = pages.length * this.#pageSize;
    this.#empty = this.#skew - slots;
  }

  /** Frees all pages. Every token must be computed again. */
  clear(): void {
    if (this.#pages.length > 0) allocate.freePages(this.#queue, this.#pages);
    this.#pages = [];
    this.#masks = [];
    this.#foreign = 0;
    this.#cached = 0;
    this.#skew = 0;
    this.#empty = 0;
    this.#floor = 0;
    this.#sealed = 0;
  }

  #applyMask(page: number): void {
    forward.maskPage(this.#queue, this.#pages[page] as number, this.#masks[page] ?? 0);
  }
}

const OPENED_MASKS =
  'What was opened, and what shares a page with it, cannot be hidden or shown: what was hidden when it was saved is not known here.';
const SEALED = 'What comes before the end of an image cannot be cut: begin a new context, or fork before the image.';
