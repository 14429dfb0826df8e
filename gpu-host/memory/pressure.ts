import { holders, type Page } from './pool.ts';
import type { SwapTicket } from './swap/store.ts';

/** A holder of pages, with its references by page. */
export interface PageHolding {
  readonly held: ReadonlyMap<Page, number>;
}

/** Frames that a call needs: those for new pages, and those for copies of pages that it writes through so many mappings each. */
export interface FrameNeed {
  readonly frames: number;
  readonly copies: ReadonlyMap<Page, number>;
}

/** Holders whose pages may go to swap: the spaces of waiting and of preempted inferlets, newest first, and the snapshots. */
export interface IdleHolders {
  readonly spaces: readonly PageHolding[];
  readonly snapshots: ReadonlyMap<Page, number>;
}

/** Frames that `need` takes once all of `ended` have let go. A page in the prefix tree alone needs no copy: it can leave the tree. */
export function framesNeeded(need: FrameNeed, ended: readonly PageHolding[]): number {
  let frames = need.frames;
  for (const [page, mappings] of need.copies) {
    let left = holders(page) - mappings;
    for (const { held } of ended) left -= held.get(page) ?? 0;
    // The last mapping to write a page that no other holder has writes it in place.
    frames += left > 0 ? mappings : mappings - 1;
  }
  return frames;
}

/** Room in swap: `pages` are free, and those of the ended whose tickets `reusable` accepts come free. */
export interface SwapRoom {
  readonly pages: number;
  reusable(ticket: SwapTicket): boolean;
}

/** Frames that come free when all of `ended` let go and the pages of all of `idle` move to swap, as far as it has room. */
export function framesGained(ended: readonly PageHolding[], idle: IdleHolders, room: SwapRoom): number {
  const gone = countHeld(ended);
  const others = new Set(ended);
  const movable = countHeld(
    idle.spaces.filter((space) => !others.has(space)),
    idle.snapshots,
  );
  let [freed, moved, places] = [0, 0, room.pages];
  for (const [page, count] of gone) {
    if (holders(page) !== count) continue;
    if (page.frame >= 0) freed++;
    else if (page.swapped && room.reusable(page.swapped)) places++;
  }
  for (const [page, count] of movable) {
    if (page.frame < 0 || holders(page) !== count + (gone.get(page) ?? 0)) continue;
    // An empty page has nothing to keep.
    if (page.filled === 0) freed++;
    else moved++;
  }
  return freed + Math.min(moved, places);
}

/** As `framesGained` while none ends, for holders that come and go one by one: choosing among many of them asks often. */
export class IdleGain {
  readonly #counts = new Map<Page, number>();
  readonly #room: SwapRoom;
  #freed = 0;
  #moved = 0;

  constructor({ spaces, snapshots }: IdleHolders, room: SwapRoom) {
    this.#room = room;
    this.#change(snapshots, 1);
    for (const { held } of spaces) this.#change(held, 1);
  }

  get frames(): number {
    return this.#freed + Math.min(this.#moved, this.#room.pages);
  }

  add({ held }: PageHolding): void {
    this.#change(held, 1);
  }

  remove({ held }: PageHolding): void {
    this.#change(held, -1);
  }

  #change(held: ReadonlyMap<Page, number>, sign: 1 | -1): void {
    for (const [page, references] of held) {
      if (page.frame < 0) continue;
      const before = this.#counts.get(page) ?? 0;
      const after = before + sign * references;
      this.#counts.set(page, after);
      const all = holders(page);
      const gained = Number(after === all) - Number(before === all);
      // An empty page has nothing to keep.
      if (page.filled === 0) this.#freed += gained;
      else this.#moved += gained;
    }
  }
}

/**
 * Pages that may be swapped out, in order: each has only idle holders (and the prefix tree). Pages of unmapped snapshots come first, since
 * no inferlet waits for them; then those of one inferlet alone; last the shared ones.
 */
export function* swappable(idle: IdleHolders): Generator<Page> {
  for (const [page, count] of idle.snapshots) if (page.frame >= 0 && holders(page) === count) yield page;
  for (const { held } of idle.spaces) {
    for (const [page, count] of held) if (page.frame >= 0 && holders(page) === count) yield page;
  }
  for (const [page, count] of countHeld(idle.spaces, idle.snapshots)) {
    if (page.frame >= 0 && holders(page) === count) yield page;
  }
}

function countHeld(spaces: readonly PageHolding[], more?: ReadonlyMap<Page, number>): Map<Page, number> {
  const counts = new Map(more);
  for (const { held } of spaces) {
    for (const [page, count] of held) counts.set(page, (counts.get(page) ?? 0) + count);
  }
  return counts;
}
