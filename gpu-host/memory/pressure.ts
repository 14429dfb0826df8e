import { holders, type Page } from './pool.ts';

/** A holder of pages, with its references by page. */
export interface PageHolding {
  readonly held: ReadonlyMap<Page, number>;
}

/** Frames that a call needs: those for new pages, and those for copies of pages that it writes through so many mappings each. */
export interface FrameNeed {
  readonly frames: number;
  readonly copies: ReadonlyMap<Page, number>;
}

/** Holders whose pages may go to swap: the spaces of waiting inferlets, newest first, and the snapshots. */
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

/** Frames that come free when all of `ended` let go. With `idle`, includes pages whose other holders could then all be swapped out. */
export function framesFreed(ended: readonly PageHolding[], idle: IdleHolders | undefined): number {
  const gone = countHeld(ended);
  let freed = 0;
  if (!idle) {
    for (const [page, count] of gone) if (page.frame >= 0 && holders(page) === count) freed++;
    return freed;
  }
  const others = new Set(ended);
  const movable = countHeld(
    idle.spaces.filter((space) => !others.has(space)),
    idle.snapshots,
  );
  for (const [page, count] of gone) {
    if (page.frame >= 0 && holders(page) === count + (movable.get(page) ?? 0)) freed++;
  }
  return freed;
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
