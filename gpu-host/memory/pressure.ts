import type { Shortfall } from '#scheduler/policies/preemption.ts';
import { holders, type Page, type PageAccount } from './pool.ts';
import type { Contender, PageSpace } from './space.ts';
import type { SwapTicket } from './swap/store.ts';

/** A holder of pages, with its references by page. */
export interface PageHolding {
  readonly held: ReadonlyMap<Page, number>;
}

/**
 * Frames that a call needs: `frames` for new pages, and more for copies of shared pages that it writes. `copies` maps each written page to the
 * number of mappings (addresses) through which the call writes it.
 */
export interface FrameNeed {
  readonly frames: number;
  readonly copies: ReadonlyMap<Page, number>;
}

/** Holders whose pages may go to swap: the spaces of waiting and of preempted inferlets, and the snapshots. */
export interface IdleHolders {
  readonly spaces: readonly PageHolding[];
  readonly snapshots: ReadonlyMap<Page, number>;
  /** Maximum pages of a tenant that may go to swap. */
  takeable(account: PageAccount): number;
}

/** Frames that `need` takes once the holders `ended` have let go of their pages. The prefix tree is no holder: a written page is taken out of it. */
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

/**
 * Room in swap: `pages` places are free now. A swapped-out page whose last holder ends frees its place, if `reusable`
 * accepts its ticket.
 */
export interface SwapRoom {
  readonly pages: number;
  reusable(ticket: SwapTicket): boolean;
}

/** Frames that become free when all of `ended` let go of their pages, and the pages of `idle` move to swap as far as swap has room. */
export function framesGained(ended: readonly PageHolding[], idle: IdleHolders, room: SwapRoom): number {
  const endedCounts = countHeld(ended);
  const endedHolders = new Set(ended);
  let swapPlaces = room.pages;
  const gained = new GainedPages(idle);
  for (const [page, count] of endedCounts) {
    if (holders(page) !== count) continue;
    if (page.frame >= 0) gained.countEnded(page, 1);
    else if (page.swapped && room.reusable(page.swapped)) swapPlaces++;
  }
  // Most pages have one holder, and need no entry here.
  const sharedCounts = new Map<Page, number>();
  const countIdle = (held: ReadonlyMap<Page, number>): void => {
    for (const [page, count] of held) {
      if (page.frame < 0) continue;
      if (holders(page) === count) gained.countIdle(page, 1);
      else sharedCounts.set(page, (sharedCounts.get(page) ?? 0) + count);
    }
  };
  countIdle(idle.snapshots);
  for (const space of idle.spaces) if (!endedHolders.has(space)) countIdle(space.held);
  for (const [page, count] of sharedCounts)
    if (holders(page) === count + (endedCounts.get(page) ?? 0)) gained.countIdle(page, 1);
  return gained.frames(swapPlaces);
}

/** Counts of one tenant's pages, and what they add to the sums of all tenants. */
interface TenantGain {
  /** Maximum idle pages that may leave beside the ended ones. */
  readonly takeable: number;
  ended: number;
  empty: number;
  filled: number;
}

/** Pages whose holders have ended or are idle, by tenant. Of its idle pages, no tenant loses more than `takeable` allows beside the ended ones. */
class GainedPages {
  readonly #takeable: IdleHolders['takeable'];
  readonly #tenants = new Map<PageAccount, TenantGain>();
  /** The tenant of the last counted page: the next page is often of the same one. */
  #lastTenant: { readonly account: PageAccount; readonly gain: TenantGain } | undefined;
  // Sums over all tenants, so that a read takes no time for each tenant.
  #freedFrames = 0;
  #filledPages = 0;

  constructor({ takeable }: Pick<IdleHolders, 'takeable'>) {
    this.#takeable = takeable;
  }

  countEnded({ account }: Page, change: 1 | -1): void {
    const tenant = this.#of(account);
    this.#sum(tenant, -1);
    tenant.ended += change;
    this.#sum(tenant, 1);
  }

  countIdle({ account, filled }: Page, change: 1 | -1): void {
    const tenant = this.#of(account);
    this.#sum(tenant, -1);
    // An empty page has nothing to keep.
    if (filled === 0) tenant.empty += change;
    else tenant.filled += change;
    this.#sum(tenant, 1);
  }

  /** Frames that become free when as many of the pages as possible leave, and swap has `swapPlaces` places. */
  frames(swapPlaces: number): number {
    return this.#freedFrames + Math.min(this.#filledPages, swapPlaces);
  }

  #sum({ takeable, ended, empty, filled }: TenantGain, sign: 1 | -1): void {
    const maxIdle = Math.max(0, takeable - ended);
    const emptyTaken = Math.min(empty, maxIdle);
    this.#freedFrames += sign * (ended + emptyTaken);
    this.#filledPages += sign * Math.min(filled, maxIdle - emptyTaken);
  }

  #of(account: PageAccount): TenantGain {
    if (this.#lastTenant?.account === account) return this.#lastTenant.gain;
    let gain = this.#tenants.get(account);
    if (!gain) {
      gain = { takeable: this.#takeable(account), ended: 0, empty: 0, filled: 0 };
      this.#tenants.set(account, gain);
    }
    this.#lastTenant = { account, gain };
    return gain;
  }
}

/** References to a page by idle holders, and by holders that count as ended. */
interface Counts {
  idle: number;
  ended: number;
}

/** Keeps the result of `framesGained` up to date while holders change one by one: a policy that chooses among many holders reads it often. */
export class FrameGain {
  readonly #counts = new Map<Page, Counts>();
  readonly #room: SwapRoom;
  readonly #gained: GainedPages;
  #swapPlaces: number;

  constructor(idle: IdleHolders, room: SwapRoom) {
    const { spaces, snapshots } = idle;
    this.#room = room;
    this.#gained = new GainedPages(idle);
    this.#swapPlaces = room.pages;
    this.#change(snapshots, 1, 0);
    for (const { held } of spaces) this.#change(held, 1, 0);
  }

  get frames(): number {
    return this.#gained.frames(this.#swapPlaces);
  }

  /** Counts a holder as idle (1), or no longer as idle (-1). */
  changeIdle({ held }: PageHolding, change: 1 | -1): void {
    this.#change(held, change, 0);
  }

  /** Counts a holder as ended (1), or no longer as ended (-1). @param isIdle true for a holder that is idle unless it has ended */
  changeEnded({ held }: PageHolding, change: 1 | -1, isIdle: boolean): void {
    // A holder counts as idle or as ended, never as both.
    const toIdle = change === 1 ? -1 : 1;
    this.#change(held, isIdle ? toIdle : 0, change);
  }

  #change(held: ReadonlyMap<Page, number>, idleChange: 1 | 0 | -1, endedChange: 1 | 0 | -1): void {
    for (const [page, references] of held) {
      if (holders(page) === references) {
        // Most pages have one holder, and need no entry.
        if (idleChange !== 0 && page.frame >= 0) this.#gained.countIdle(page, idleChange);
        if (endedChange !== 0) this.#countEnded(page, endedChange);
        continue;
      }
      let counts = this.#counts.get(page);
      if (counts) this.#count(page, counts, -1);
      else {
        counts = { idle: 0, ended: 0 };
        this.#counts.set(page, counts);
      }
      counts.idle += idleChange * references;
      counts.ended += endedChange * references;
      this.#count(page, counts, 1);
    }
  }

  #count(page: Page, counts: Counts, sign: 1 | -1): void {
    const holderCount = holders(page);
    if (counts.ended === holderCount) this.#countEnded(page, sign);
    else if (page.frame >= 0 && counts.idle > 0 && counts.idle + counts.ended === holderCount)
      this.#gained.countIdle(page, sign);
  }

  #countEnded(page: Page, sign: 1 | -1): void {
    if (page.frame >= 0) this.#gained.countEnded(page, sign);
    else if (page.swapped && this.#room.reusable(page.swapped)) this.#swapPlaces += sign;
  }
}

/**
 * Pages that may go to swap after those that only snapshots hold, in the order of the idle spaces. First come the pages that a single one holds,
 * then those that idle spaces and snapshots share. The prefix tree may hold each page, too; any other holder keeps a
 * page on the device.
 */
export function* swappable(idle: Pick<IdleHolders, 'spaces' | 'snapshots'>): Generator<Page> {
  const sharedCounts = new Map<Page, number>();
  for (const { held } of idle.spaces) {
    for (const [page, count] of held) {
      if (page.frame < 0) continue;
      if (holders(page) === count) yield page;
      else sharedCounts.set(page, (sharedCounts.get(page) ?? idle.snapshots.get(page) ?? 0) + count);
    }
  }
  for (const [page, count] of sharedCounts) if (page.frame >= 0 && holders(page) === count) yield page;
}

function countHeld(spaces: readonly PageHolding[]): Map<Page, number> {
  const counts = new Map<Page, number>();
  for (const { held } of spaces) {
    for (const [page, count] of held) counts.set(page, (counts.get(page) ?? 0) + count);
  }
  return counts;
}

/** A claim for frames, and the frames that memory can give it while no family is preempted and no inferlet is ended for it. */
export interface Claim {
  readonly requester: PageSpace;
  readonly need: FrameNeed;
  /** Free frames of the pool. */
  readonly free: number;
  /** Holders whose pages may go to swap, without the requester. */
  readonly idle: IdleHolders;
  readonly room: SwapRoom;
}

/** The frames that a claim still lacks while families are preempted one by one. */
export class PreemptionShortfall implements Shortfall<Contender> {
  readonly #requester: PageSpace;
  readonly #gain: FrameGain;
  readonly #shortFrames: number;

  constructor({ requester, need, free, idle, room }: Claim) {
    this.#requester = requester;
    this.#gain = new FrameGain(idle, room);
    this.#shortFrames = framesNeeded(need, []) - free;
  }

  get missing(): number {
    return this.#shortFrames - this.#gain.frames;
  }

  leave(family: Contender): void {
    this.#change(family, 1);
  }

  stay(family: Contender): void {
    this.#change(family, -1);
  }

  #change({ spaces }: Contender, change: 1 | -1): void {
    // A movable space counts as idle already.
    for (const space of spaces)
      if (space !== this.#requester && space.pins === 0 && !space.movable) this.#gain.changeIdle(space, change);
  }
}

/** The frames that a claim still lacks while inferlets are ended one by one. */
export class EndingShortfall implements Shortfall<PageSpace> {
  readonly #need: FrameNeed;
  readonly #freeFrames: number;
  readonly #gain: FrameGain;
  readonly #idleSpaces: ReadonlySet<object>;
  /** References of ended inferlets to the pages that the claim writes. */
  readonly #endedReferences = new Map<Page, number>();

  constructor({ need, free, idle, room }: Claim) {
    this.#need = need;
    this.#freeFrames = free;
    this.#gain = new FrameGain(idle, room);
    this.#idleSpaces = new Set(idle.spaces);
  }

  get missing(): number {
    return framesNeeded(this.#need, [{ held: this.#endedReferences }]) - this.#freeFrames - this.#gain.frames;
  }

  leave(space: PageSpace): void {
    this.#change(space, 1);
  }

  stay(space: PageSpace): void {
    this.#change(space, -1);
  }

  #change(space: PageSpace, change: 1 | -1): void {
    const { held } = space;
    this.#gain.changeEnded({ held }, change, this.#idleSpaces.has(space));
    for (const page of this.#need.copies.keys()) {
      const references = held.get(page);
      if (references) this.#endedReferences.set(page, (this.#endedReferences.get(page) ?? 0) + change * references);
    }
  }
}
