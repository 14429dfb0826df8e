import { holders, type Page } from './pool.ts';
import type { SwapTicket } from './swap/store.ts';

/** A holder of pages, with its references by page. */
export interface PageHolding {
  readonly held: ReadonlyMap<Page, number>;
}

/**
 * Frames that a call needs: for new pages, and for copies of written pages. `copies` maps each page to the number of mappings through which it is
 * written.
 */
export interface FrameNeed {
  readonly frames: number;
  readonly copies: ReadonlyMap<Page, number>;
}

/** Holders whose pages may go to swap: the spaces of waiting and of preempted inferlets, newest first, and the snapshots. */
export interface IdleHolders {
  readonly spaces: readonly PageHolding[];
  readonly snapshots: ReadonlyMap<Page, number>;
}

/** Frames that `need` takes once all of `ended` have let go. The prefix tree alone makes no copy necessary: a page can leave it. */
export function framesNeeded(need: FrameNeed, ended: readonly PageHolding[]): number {
  let frames = need.frames;
  for (const [page, mappings] of need.copies) {
    let remainingHolders = holders(page) - mappings;
    for (const { held } of ended) remainingHolders -= held.get(page) ?? 0;
    // Without other holders, the last mapping that writes the page writes it in place.
    frames += remainingHolders > 0 ? mappings : mappings - 1;
  }
  return frames;
}

/** Room in swap: `pages` places now, and the place of each swapped-out page whose last holder ends, if `reusable` accepts its ticket. */
export interface SwapRoom {
  readonly pages: number;
  reusable(ticket: SwapTicket): boolean;
}

/** Frames that come free when all of `ended` let go and the pages of all of `idle` move to swap, as far as it has room. */
export function framesGained(ended: readonly PageHolding[], idle: IdleHolders, room: SwapRoom): number {
  const goneCounts = countHeld(ended);
  const endedHolders = new Set(ended);
  const movableCounts = countHeld(
    idle.spaces.filter((space) => !endedHolders.has(space)),
    idle.snapshots,
  );
  let [freedFrames, movedPages, swapPlaces] = [0, 0, room.pages];
  for (const [page, count] of goneCounts) {
    if (holders(page) !== count) continue;
    if (page.frame >= 0) freedFrames++;
    else if (page.swapped && room.reusable(page.swapped)) swapPlaces++;
  }
  for (const [page, count] of movableCounts) {
    if (page.frame < 0 || holders(page) !== count + (goneCounts.get(page) ?? 0)) continue;
    // An empty page has nothing to keep.
    if (page.filled === 0) freedFrames++;
    else movedPages++;
  }
  return freedFrames + Math.min(movedPages, swapPlaces);
}

/** References to a page by the holders that are idle, and by those that are gone. */
interface Counts {
  idle: number;
  gone: number;
}

/** As `framesGained`, kept up to date while holders change one by one: the choice among many holders asks for it often. */
export class FrameGain {
  readonly #counts = new Map<Page, Counts>();
  readonly #room: SwapRoom;
  #freedFrames = 0;
  #movedPages = 0;
  #swapPlaces: number;

  constructor({ spaces, snapshots }: IdleHolders, room: SwapRoom) {
    this.#room = room;
    this.#swapPlaces = room.pages;
    this.#change(snapshots, 1, 0);
    for (const { held } of spaces) this.#change(held, 1, 0);
  }

  get frames(): number {
    return this.#freedFrames + Math.min(this.#movedPages, this.#swapPlaces);
  }

  /** A holder becomes idle (1), or is idle no longer (-1). */
  changeIdle({ held }: PageHolding, change: 1 | -1): void {
    this.#change(held, change, 0);
  }

  /** A holder ends (1), or has not ended after all (-1). @param isIdle true when it is idle while it has not ended */
  changeEnded({ held }: PageHolding, change: 1 | -1, isIdle: boolean): void {
    this.#change(held, isIdle ? (change === 1 ? -1 : 1) : 0, change);
  }

  #change(held: ReadonlyMap<Page, number>, idleChange: 1 | 0 | -1, goneChange: 1 | 0 | -1): void {
    for (const [page, references] of held) {
      let counts = this.#counts.get(page);
      if (counts) this.#count(page, counts, -1);
      else {
        counts = { idle: 0, gone: 0 };
        this.#counts.set(page, counts);
      }
      counts.idle += idleChange * references;
      counts.gone += goneChange * references;
      this.#count(page, counts, 1);
    }
  }

  #count(page: Page, counts: Counts, sign: 1 | -1): void {
    const holderCount = holders(page);
    if (counts.gone === holderCount) {
      if (page.frame >= 0) this.#freedFrames += sign;
      else if (page.swapped && this.#room.reusable(page.swapped)) this.#swapPlaces += sign;
    } else if (page.frame >= 0 && counts.idle > 0 && counts.idle + counts.gone === holderCount) {
      // An empty page has nothing to keep.
      if (page.filled === 0) this.#freedFrames += sign;
      else this.#movedPages += sign;
    }
  }
}

/**
 * Pages that may be swapped out after those that only snapshots hold, in order: each has only idle holders (and the prefix tree). Pages of
 * one inferlet alone come first, then the shared ones.
 */
export function* swappable(idle: IdleHolders): Generator<Page> {
  for (const { held } of idle.spaces) {
    for (const [page, count] of held) if (page.frame >= 0 && holders(page) === count) yield page;
  }
  for (const [page, count] of countHeld(idle.spaces, idle.snapshots)) {
    if (page.frame >= 0 && holders(page) === count) yield page;
  }
}

function countHeld(spaces: readonly PageHolding[], initialCounts?: ReadonlyMap<Page, number>): Map<Page, number> {
  const counts = new Map(initialCounts);
  for (const { held } of spaces) {
    for (const [page, count] of held) counts.set(page, (counts.get(page) ?? 0) + count);
  }
  return counts;
}
