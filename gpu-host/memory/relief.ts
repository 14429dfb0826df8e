import { choosePreempted, isProtectedFrom, mayReturn } from '#scheduler/policies/preemption.ts';
import { chooseVictims, isNewer } from '#scheduler/policies/victims.ts';
import type { Contender } from './contender.ts';
import { CallHeld, fault } from './fault.ts';
import { isCached, type Page, type PagePool } from './pool.ts';
import type { PrefixTree } from './prefix/tree.ts';
import { type FrameNeed, framesGained, framesNeeded, type IdleHolders, type SwapRoom, swappable } from './pressure.ts';
import { type Claim, EndingShortfall, PreemptionShortfall } from './shortfall.ts';
import type { PageSpace } from './space.ts';
import type { FrozenPages } from './space-snapshot.ts';
import type { SwapStore, SwapTicket } from './swap/store.ts';

export interface ReliefOptions {
  readonly pool: PagePool;
  readonly prefixes: PrefixTree<Page> | undefined;
  readonly snapshots: FrozenPages;
  readonly spaces: ReadonlySet<PageSpace>;
  readonly contenders: Iterable<Contender>;
  readonly swap: SwapStore | undefined;
  /** Copies a page to swap; undefined when swap refuses it. */
  put(requester: PageSpace, page: Page): SwapTicket | undefined;
  /** As `MemoryOptions.terminate`. */
  terminate(space: PageSpace, cause: string): void;
  /** As `MemoryOptions.preempt`. */
  readonly preempt: ((family: Contender) => void) | undefined;
}

export interface ReliefStats {
  /** Pages moved to swap since the start. */
  readonly swapsOut: number;
  /** Preemptions of families since the start. */
  readonly preemptions: number;
  /** Inferlets ended to make room since the start. */
  readonly terminations: number;
  /** Frames of waiting and preempted inferlets whose pages could move to swap, as far as swap has room. A shared page counts for each inferlet. */
  readonly idle: number;
  /** Families that are preempted now and have calls that are held. */
  readonly preempted: number;
}

/** Families whose return `next` refused, and the state of memory at that time. `next` considers them again once that state has improved. */
interface Refusal {
  readonly families: ReadonlySet<Contender>;
  /** Frames that were free or held cached prefixes only. */
  readonly available: number;
  /** Number of other families that kept pages from the oldest of the refused ones. */
  readonly inTheWay: number;
}

/**
 * Makes room when frames run out. A claim for frames takes these steps in order, until it fits:
 * 1. evict cached prefixes that no inferlet uses;
 * 2. move pages to swap: those of snapshots that no inferlet maps, of inferlets that wait on I/O, and of preempted families;
 * 3. end leases, so that their pages can move to swap as well;
 * 4. preempt the newest families (an invocation and its children each), so that their pages can move to swap as well;
 * 5. once swap is full, end the newest inferlets (Pie, SOSP '25, section 5.3).
 *
 * A claim that would need pages of families older than its own preempts its own family instead: its call is held, and made again when the family
 * returns. This happens only while an older family runs. So the oldest family that can go on is never held, and each hold ends when older families
 * give pages back, wait on I/O, or end.
 */
export class Relief {
  readonly #options: ReliefOptions;
  readonly #pool: PagePool;
  #swapsOut = 0;
  #preemptions = 0;
  #terminations = 0;
  /** True after a change that may let a family return. */
  #mayReturn = false;
  /** True when swap refused the last page although it had room: its disk fails. */
  #swapFails = false;
  /** The families whose return was refused last, with the state of memory at that time. */
  #lastRefusal: Refusal | undefined;

  constructor(options: ReliefOptions) {
    this.#options = options;
    this.#pool = options.pool;
  }

  /** As `DeviceMemory.claim`. */
  claim(requester: PageSpace, need: FrameNeed): void {
    // A preempted family gets frames only when it returns.
    if (requester.contender.isAway && framesNeeded(need, []) > 0) throw this.#hold(requester, need);
    for (;;) {
      if (this.#fits(need)) return;
      this.#evictCached(need);
      if (this.#fits(need)) return;
      const swapRefused = !this.#swapOut(requester, need);
      if (this.#fits(need)) return;
      // Leases end before any inferlet gives way, so that no inferlet waits for memory because of a lease.
      if (this.#options.snapshots.leases.giveWayOne()) continue;
      // Each iteration ends a lease, preempts a family, ends an inferlet or throws, which bounds the loop.
      const room = this.#room(swapRefused);
      if (!this.#preemptNewest(requester, need, room)) this.#endNewest(requester, need, room);
    }
  }

  /** Call after a change that may let a held family return, such as the end of an inferlet. */
  noteChange(): void {
    this.#mayReturn = true;
  }

  /**
   * Ends the preemption of the oldest family with held calls. When running families leave no room for that family, a newer one that fits may
   * overtake it. The newer family then has no protection from the families that it overtakes.
   * @returns the family that returns to the device; undefined when none fits
   */
  next(): Contender | undefined {
    const heldFamilies = this.#oldestFirst();
    const [oldest] = heldFamilies;
    const candidates = this.#isBetter(oldest) ? heldFamilies : this.#notConsidered(heldFamilies);
    const { available } = this.#pool;
    this.#lastRefusal = oldest && { families: new Set(heldFamilies), available, inTheWay: this.#inTheWay(oldest) };
    if (!oldest || candidates.length === 0) return undefined;
    this.#mayReturn = false;
    const family = this.#firstThatFits(oldest, candidates);
    if (!family) return undefined;
    const newestOvertaken = heldFamilies[heldFamilies.indexOf(family) - 1];
    family.return(newestOvertaken);
    this.#lastRefusal = undefined;
    return family;
  }

  #firstThatFits(oldest: Contender, candidates: readonly Contender[]): Contender | undefined {
    const { total } = this.#pool;
    // While a family older than all held ones runs, the oldest held family may find no room, and a newer one that needs less may overtake it.
    const mayOvertake = this.#runningFamilies(oldest).some((other) => other.runs && isNewer(oldest, other));
    // Upper bound on the frames for later candidates: they are newer, so they cannot preempt any family that earlier candidates cannot.
    let maxAvailable = Number.POSITIVE_INFINITY;
    for (const family of candidates) {
      if (family !== oldest && !mayOvertake) return undefined;
      const needed = Math.min(total, family.needed);
      if (!mayReturn({ needed, available: maxAvailable, total, olderRuns: true })) continue;
      const others = this.#runningFamilies(family);
      const olderRuns = mayOvertake || others.some((other) => isNewer(family, other) || other.isPinned);
      if (!olderRuns) return family;
      const available = this.#gained(family, others);
      if (mayReturn({ needed, available, total, olderRuns })) return family;
      // Add the candidate's own pages, which later candidates may take: `#gained` has not counted them.
      maxAvailable = Math.min(maxAvailable, available + family.resident);
    }
    return undefined;
  }

  /** Frames that the family would have after the preemption of all newer families that are not protected from it. */
  #gained(family: Contender, others: readonly Contender[]): number {
    const newer = others.filter((other) => isNewer(other, family) && !isProtectedFrom(other, family));
    const leavingFamilies = new Set(newer);
    const promised = others.reduce((sum, other) => sum + (leavingFamilies.has(other) ? 0 : other.promised), 0);
    // A failing swap refuses pages although it has room. If that room counted, the family would return, be held again at once, and so on without end.
    const room = this.#room(this.#swapFails);
    return this.#pool.available - promised + framesGained([], this.#movable(newer, family), room);
  }

  /** True when `next` has a family to consider. */
  get isDue(): boolean {
    const heldFamilies = this.#oldestFirst();
    return this.#isBetter(heldFamilies[0]) || this.#notConsidered(heldFamilies).length > 0;
  }

  /** Call when no family has a call that can run: preempts all families, so that the oldest held one returns. @returns false when no call is held */
  stalled(): boolean {
    if (!this.holdsCalls) return false;
    for (const family of this.#options.contenders) if (family.runs && !family.isPinned) this.#preempt(family);
    this.noteChange();
    return true;
  }

  /** True when calls are held. */
  get holdsCalls(): boolean {
    return !this.#heldFamilies().next().done;
  }

  stats(): ReliefStats {
    return {
      swapsOut: this.#swapsOut,
      preemptions: this.#preemptions,
      terminations: this.#terminations,
      idle: this.#idleFrames(),
      preempted: [...this.#heldFamilies()].length,
    };
  }

  #fits(need: FrameNeed): boolean {
    return framesNeeded(need, []) <= this.#pool.free;
  }

  #evictCached(need: FrameNeed): void {
    const tree = this.#options.prefixes;
    if (!tree) return;
    while (!this.#fits(need)) {
      // A claim copies only pages that its requester holds, and none of these is evicted here. So evictions do not change the need.
      const needed = framesNeeded(need, []);
      for (const page of tree.evictLeaves(isCached)) {
        this.#pool.abandon(page);
        if (needed <= this.#pool.free) return;
      }
      if (this.#pool.cached === 0) return;
      for (const page of tree.evictBlocked(isCached)) this.#pool.abandon(page);
    }
  }

  /** Preempted families with held calls. */
  *#heldFamilies(): Generator<Contender> {
    for (const family of this.#options.contenders) if (family.isAway && family.heldCalls > 0) yield family;
  }

  #oldestFirst(): Contender[] {
    return [...this.#heldFamilies()].sort((a, b) => (isNewer(a, b) ? 1 : -1));
  }

  /** True when memory has improved for the oldest held family since its refusal, or when `next` has not considered that family yet. */
  #isBetter(oldest: Contender | undefined): boolean {
    if (!oldest) return false;
    const lastRefusal = this.#lastRefusal;
    if (this.#mayReturn || !lastRefusal?.families.has(oldest) || this.#pool.available > lastRefusal.available)
      return true;
    return this.#inTheWay(oldest) < lastRefusal.inTheWay;
  }

  /** Held families that the last refusal does not include: `next` has not considered them yet. */
  #notConsidered(heldFamilies: readonly Contender[]): Contender[] {
    return heldFamilies.filter((family) => !this.#lastRefusal?.families.has(family));
  }

  /** Number of other families that keep `ownFamily` from pages now: older, protected or pinned ones. */
  #inTheWay(ownFamily: Contender): number {
    return this.#runningFamilies(ownFamily).filter(
      (other) => isNewer(ownFamily, other) || other.protectedSteps > 0 || other.isPinned,
    ).length;
  }

  /** Other families that hold pages and may go on by themselves, or whose pages are in use. */
  #runningFamilies(ownFamily: Contender): Contender[] {
    return [...this.#options.contenders].filter((family) => family !== ownFamily && (family.runs || family.isPinned));
  }

  /** The holders whose pages may go to swap once `preemptedFamilies` are preempted, without the space or the family `excluded`. */
  #movable(preemptedFamilies: readonly Contender[], excluded: PageSpace | Contender): IdleHolders {
    const families = new Set(preemptedFamilies);
    const spaces = [...this.#options.spaces].filter((space) => {
      if (space === excluded || space.contender === excluded) return false;
      return space.movable || (space.pins === 0 && families.has(space.contender));
    });
    return { spaces: spaces.sort((a, b) => (isNewer(a, b) ? -1 : 1)), snapshots: this.#options.snapshots.held };
  }

  /** @param swapRefused true when swap has just refused a page: it is full, or its disk fails although it has room */
  #room(swapRefused: boolean): SwapRoom {
    const { memoryPages = 0, diskPages = 0, capacity = 0 } = this.#options.swap?.stats() ?? {};
    const pages = capacity - memoryPages - diskPages;
    if (!swapRefused) return { pages, reusable: () => true };
    // A swap that has room and refuses a page has a failing disk: of the places that become free, only those in memory can be used again.
    const diskFails = pages > 0;
    return { pages: 0, reusable: ({ place }) => !diskFails || place === 'memory' };
  }

  #idleFrames(): number {
    const { pages } = this.#room(false);
    const { owned, swappedOut } = this.#pool.counts();
    let idlePages = -swappedOut;
    for (const space of this.#options.spaces) if (space.movable) idlePages += space.heldPages;
    return Math.max(0, Math.min(idlePages, owned, pages));
  }

  /** Moves pages to swap until the need is met. @returns false when swap refused a page, or the host has no swap */
  #swapOut(requester: PageSpace, need: FrameNeed): boolean {
    const { snapshots, swap } = this.#options;
    let hasSwapRoom = swap !== undefined;
    for (const page of this.#movablePages(requester)) {
      if (this.#fits(need)) break;
      if (snapshots.leases.isPinned(page)) continue;
      // An empty page leaves even when swap has no room.
      if (page.filled !== 0 && !hasSwapRoom) continue;
      if (!this.moveOut(requester, page)) hasSwapRoom = false;
    }
    return hasSwapRoom;
  }

  /** Pages that may go to swap, those of snapshots first: no inferlet waits for them. */
  *#movablePages(requester: PageSpace): Generator<Page> {
    yield* this.#options.snapshots.leavingPages();
    yield* swappable(this.#movable([], requester));
  }

  /** Moves to swap a page that no running inferlet needs. False when swap refuses it. */
  moveOut(requester: PageSpace, page: Page): boolean {
    let ticket: SwapTicket | undefined;
    // An empty page has nothing to keep.
    if (page.filled !== 0) {
      const { pages } = this.#room(false);
      ticket = this.#options.put(requester, page);
      // Swap takes pages again, which may let a family return.
      if (ticket && this.#swapFails) this.#mayReturn = true;
      this.#swapFails = !ticket && pages > 0;
      if (!ticket) return false;
      this.#swapsOut++;
    }
    this.#pool.swapOut(page, ticket);
    return true;
  }

  /** Makes sure that a frame is free; evicts cached prefixes if need be. False when that is not enough. */
  freeOne(): boolean {
    this.#evictCached(ONE_FRAME);
    return this.#fits(ONE_FRAME);
  }

  /**
   * Preempts the newest families whose pages then find room in swap. Returns false when that is not enough.
   * @throws CallHeld when only families that are protected, or whose pages are in use, could give enough
   */
  #preemptNewest(requester: PageSpace, need: FrameNeed, room: SwapRoom): boolean {
    if (!this.#canPreempt) return false;
    const ownFamily = requester.contender;
    const runningFamilies = this.#runningFamilies(ownFamily);
    // The policy never preempts older families. It needs them to see if the requester's family is the oldest.
    const consideredFamilies = runningFamilies.filter(
      (other) => isNewer(ownFamily, other) || (!other.isAway && !other.isPinned),
    );
    const victims = choosePreempted(
      ownFamily,
      consideredFamilies,
      new PreemptionShortfall(this.#claim(requester, need, [], room)),
    );
    for (const family of victims ?? []) this.#preempt(family);
    if (victims && victims.length > 0) return true;
    const newer = runningFamilies.filter((other) => isNewer(other, ownFamily));
    const { free, idle } = this.#claim(requester, need, newer, room);
    if (framesNeeded(need, []) - free - framesGained([], idle, room) <= 0) throw this.#hold(requester, need);
    return false;
  }

  get #canPreempt(): boolean {
    return this.#options.swap !== undefined && this.#options.preempt !== undefined;
  }

  /** @param preemptedFamilies families that count as preempted */
  #claim(requester: PageSpace, need: FrameNeed, preemptedFamilies: readonly Contender[], room: SwapRoom): Claim {
    return { requester, need, free: this.#pool.free, idle: this.#movable(preemptedFamilies, requester), room };
  }

  /** True when the request fits after all of `runningFamilies` have given their pages back. */
  #fitsLater(requester: PageSpace, need: FrameNeed, runningFamilies: readonly Contender[], room: SwapRoom): boolean {
    const families = new Set(runningFamilies);
    const spaces = [...this.#options.spaces].filter(
      (space) => space !== requester && (space.movable || families.has(space.contender)),
    );
    const gained = framesGained([], { spaces, snapshots: this.#options.snapshots.held }, room);
    return framesNeeded(need, []) - this.#pool.free - gained <= 0;
  }

  #preempt(family: Contender): void {
    if (family.isAway) return;
    this.#preemptions++;
    family.leave();
    this.#options.preempt?.(family);
  }

  /** Preempts the requester's own family. @returns the error that tells the requester's call to wait */
  #hold(requester: PageSpace, need: FrameNeed): CallHeld {
    const { contender } = requester;
    contender.wanted = Math.max(contender.wanted, framesNeeded(need, []));
    this.#preempt(contender);
    return new CallHeld('the call waits for memory');
  }

  /**
   * Ends the newest inferlets, so that the request fits.
   * @throws CallHeld when waiting helps instead; CallFault as `DeviceMemory.claim`
   */
  #endNewest(requester: PageSpace, need: FrameNeed, room: SwapRoom): void {
    const ownFamily = requester.contender;
    const otherSpaces = [...this.#options.spaces].filter((space) => space !== requester && space.heldPages > 0);
    const runningFamilies = this.#canPreempt ? this.#runningFamilies(ownFamily) : [];
    const newer = runningFamilies.filter((other) => isNewer(other, ownFamily));
    const shortfall = new EndingShortfall(this.#claim(requester, need, newer, room));
    const decision = chooseVictims(requester, otherSpaces, shortfall);
    // Older families end, or wait on I/O, at some time. So waiting helps unless the requester's own family holds too much.
    const mayWait = (): boolean =>
      runningFamilies.length > newer.length && this.#fitsLater(requester, need, runningFamilies, UNLIMITED_ROOM);
    const pages = framesNeeded(need, []);
    switch (decision.kind) {
      case 'refuse':
        throw fault(
          'limit-exceeded',
          `${pages} more pages are needed; this inferlet and exports hold too many of ${this.#pool.total}; free some`,
        );
      case 'requester': {
        if (mayWait()) throw this.#hold(requester, need);
        const cause = `memory pressure: the newest of ${otherSpaces.length + 1} inferlets found no room for ${pages} pages more`;
        this.#end(requester, cause);
        throw fault('terminated', cause);
      }
      case 'terminate':
        // Pages that a newer family is restoring from disk can move to swap soon, so waiting helps.
        if (newer.some(({ isPinned }) => isPinned) && this.#fitsLater(requester, need, newer, room))
          throw this.#hold(requester, need);
        // A family must not end one of its members for pages that it would get by waiting.
        if (decision.victims.some(({ contender }) => contender === ownFamily) && mayWait())
          throw this.#hold(requester, need);
        for (const victim of decision.victims) {
          this.#end(
            victim,
            `memory pressure: the newest of ${otherSpaces.length + 1} inferlets gave way to ${nameFor(victim, requester)}`,
          );
        }
    }
  }

  #end(space: PageSpace, cause: string): void {
    this.#terminations++;
    space.terminationCause = cause;
    this.#options.terminate(space, cause);
    if (space.heldPages > 0) throw new Error('an inferlet was ended and kept its pages');
    this.noteChange();
  }
}

const ONE_FRAME: FrameNeed = { frames: 1, copies: new Map() };
const UNLIMITED_ROOM: SwapRoom = { pages: Number.POSITIVE_INFINITY, reusable: () => true };

/** Names the inferlet that `victim` gave way to. Names of other tenants' functions stay secret. */
function nameFor(victim: PageSpace, { owner }: PageSpace): string {
  if (owner.tenant !== victim.owner.tenant) return 'an earlier invocation of another tenant';
  return owner.functionName ? `an earlier invocation of ${owner.functionName}` : 'an earlier invocation';
}
