/** A plan for a call that writes new slots: the pages that it reads, writes and allocates, as indices into the sequence's list of pages. */
export interface WritePlan {
  /** Number of pages to allocate before the call and to append to the list. */
  readonly allocate: number;
  /** Pages `[0, readEnd)` are those with filled slots. */
  readonly readEnd: number;
  /** Pages `[writeStart, writeEnd)` are those with the slots to write. The first may begin with filled slots. */
  readonly writeStart: number;
  readonly writeEnd: number;
}

/** The steps to cut a sequence at an earlier slot. */
export interface TruncatePlan {
  /** Pages `[0, keep)` stay as they are. */
  readonly keep: number;
  /** Number of first slots of page `keep` to copy into a fresh page, because single slots cannot be freed. 0 for a cut at a page border. */
  readonly copySlots: number;
}

export const pagesFor = (slots: number, pageSize: number): number => Math.ceil(slots / pageSize);

/**
 * Plans the write of `count` slots after `cached` filled ones into a sequence of `pageCount` pages. Slot i of the sequence is slot
 * `i % pageSize` of page `floor(i / pageSize)`: pages are filled without gaps.
 */
export function planWrite(cached: number, count: number, pageCount: number, pageSize: number): WritePlan {
  const writeEnd = pagesFor(cached + count, pageSize);
  return {
    allocate: Math.max(0, writeEnd - pageCount),
    readEnd: pagesFor(cached, pageSize),
    writeStart: Math.floor(cached / pageSize),
    writeEnd,
  };
}

/** Plans the cut of a sequence to its first `slots` slots. */
export function planTruncate(slots: number, pageSize: number): TruncatePlan {
  return { keep: Math.floor(slots / pageSize), copySlots: slots % pageSize };
}

/** The mask that hides a whole page, in the form of `maskSlots`. The signed number with 32 set bits is −1. */
export const allSlots = (pageSize: number): number => (pageSize === 32 ? -1 : 2 ** pageSize - 1);

/**
 * Hides or shows slots `[from, to)`, counted over all pages, in the pages' masks. A set bit hides a slot; bit 0 is slot 0 of the mask's
 * page. Masks are signed 32-bit numbers, which pass the WIT boundary unchanged. Appends masks of 0 for pages that have none.
 * @returns the indices of the pages with slots in the range, in order
 */
export function maskSlots(masks: number[], from: number, to: number, hidden: boolean, pageSize: number): number[] {
  const touched: number[] = [];
  for (let slot = from; slot < to; slot++) {
    const page = Math.floor(slot / pageSize);
    const bit = 1 << (slot % pageSize);
    while (masks.length <= page) masks.push(0);
    const mask = masks[page] as number;
    masks[page] = hidden ? mask | bit : mask & ~bit;
    if (touched.at(-1) !== page) touched.push(page);
  }
  return touched;
}

/** The steps to forget a range of slots: to hide them for good. Indices are those before any page is freed. */
export interface ForgetPlan {
  /** Pages `[first, first + count)` have slots in the range and no slot that is still shown. They can be freed. */
  readonly first: number;
  readonly count: number;
  /** The other pages with slots in the range. The device must get their new masks. */
  readonly masked: readonly number[];
  /** One past the last forgotten slot: the end of the range, or the end of the last freed page if that is later. */
  readonly end: number;
}

/** Hides slots `[from, to)` in the pages' masks, and plans to free the touched pages that are now hidden entirely. */
export function planForget(masks: number[], from: number, to: number, pageSize: number): ForgetPlan {
  const touched = maskSlots(masks, from, to, true, pageSize);
  const hiddenPages = touched.filter((page) => masks[page] === allSlots(pageSize));
  // All touched pages but the first and the last lie entirely in the range, so the freed pages are contiguous.
  const [first = 0] = hiddenPages;
  return {
    first,
    count: hiddenPages.length,
    masked: touched.filter((page) => masks[page] !== allSlots(pageSize)),
    end: Math.max(to, hiddenPages.length > 0 ? (first + hiddenPages.length) * pageSize : 0),
  };
}

/**
 * Slot of a forgotten token; -1 when its page was freed. `floor` is the first token that is not forgotten. `skew` is minus the number of slots of
 * the freed pages, so a token after these pages has slot `token + skew`.
 */
export function slotOfForgotten(token: number, floor: number, skew: number, pageSize: number): number {
  const floorSlot = floor + skew;
  // All pages between the kept beginning and the page of `floor` were freed.
  const pageStart = floorSlot - (floorSlot % pageSize);
  if (token + skew >= pageStart) return token + skew;
  return token < pageStart ? token : -1;
}

/** Masks of the fresh pages into which the slots at `indices` are copied, in order and without gaps. A hidden slot stays hidden. */
export function gatherMasks(masks: readonly number[], indices: ArrayLike<number>, pageSize: number): number[] {
  const gathered: number[] = [];
  for (let i = 0; i < indices.length; i++) {
    const slot = indices[i] as number;
    const hidden = (((masks[Math.floor(slot / pageSize)] ?? 0) >>> (slot % pageSize)) & 1) === 1;
    if (hidden) maskSlots(gathered, i, i + 1, true, pageSize);
  }
  return gathered;
}

/** `[start, start + 1, …]`: the positions of `count` new tokens. */
export function range(start: number, count: number): Uint32Array {
  const positions = new Uint32Array(count);
  for (let i = 0; i < count; i++) positions[i] = start + i;
  return positions;
}

/** Length of the beginning that two lists of tokens share. */
export function commonPrefix(left: ArrayLike<number>, right: ArrayLike<number>): number {
  const end = Math.min(left.length, right.length);
  let length = 0;
  while (length < end && left[length] === right[length]) length++;
  return length;
}
