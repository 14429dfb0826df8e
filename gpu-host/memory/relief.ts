import {
  choosePreempted,
  chooseVictims,
  isNewer,
  isProtectedFrom,
  MemoryOrder,
  mayReturn,
  type TenantClaim,
  TenantHoldings,
} from '#scheduler/policies/preemption.ts';
import { CallHeld, fault } from './fault.ts';
import { isCached, type Page, type PageAccount, type PageAccounts, type PagePool } from './pool.ts';
import type { PrefixTree } from './prefix/tree.ts';
import {
  type Claim,
  EndingShortfall,
  type FrameNeed,
  framesGained,
  framesNeeded,
  type IdleHolders,
  PreemptionShortfall,
  type SwapRoom,
  swappable,
} from './pressure.ts';
import type { Contender, PageSpace } from './space.ts';
import type { FrozenPages } from './space-snapshot.ts';
import type { SwapStore, SwapTicket } from './swap/store.ts';

export interface ReliefOptions {
  readonly pool: PagePool;
  readonly prefixes: PrefixTree<Page, PageAccount> | undefined;
  readonly accounts: PageAccounts;
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
  /** As `MemoryOptions.now`. */
  now(): number;
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
  /** The share of that oldest one's tenant. */
  readonly share: number;
}

/** Makes the orders of frames of one moment. */
type Orders = (claim?: TenantClaim<PageAccount>, claimant?: Contender) => MemoryOrder<PageAccount>;

/**
 * Makes room when frames run out. A claim for frames takes these steps in order, until it fits:
 * 1. evict cached prefixes that no inferlet uses;
 * 2. move pages to swap: those of snapshots that no inferlet maps, of inferlets that wait on I/O, and of preempted families;
 * 3. end leases, so that their pages can move to swap as well;
 * 4. preempt families (an invocation and its children each), so that their pages can move to swap as well;
 * 5. once swap is full, end inferlets (Pie, SOSP '25, section 5.3).
 *
 * `MemoryOrder` decides in each step which tenant and which family gives way. From another tenant, a claim takes only what that tenant holds above
 * its share: of the frames in steps 1 to 4, of the frames and of swap together in step 5.
 *
 * A claim that would need pages of families that precede its own, or pages within the shares of other tenants, preempts its own family instead: its
 * call is held, and made again when the family returns. So the oldest family within its share is never held, and each hold ends when others give
 * pages back, wait on I/O, or end.
 */
export class Relief {
  readonly #options: ReliefOptions;
  readonly #pool: PagePool;
  #swapsOut = 0;
  #preemptions = 0;
  #terminations = 0;
  /** True after a change that may let a family return. */
  #mayReturn = false;
  /** True from `stalled` on, until a family returns or claims frames: meanwhile no family grows, and returns need no reserve. */
  #isStalled = false;
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
    this.#isStalled = false;
    // A preempted family gets frames only when it returns.
    if (requester.contender.isAway && framesNeeded(need, []) > 0) throw this.#hold(requester, need);
    const { account } = requester.contender;
    account.idleSinceMs = undefined;
    for (;;) {
      if (this.#fits(need)) return;
      this.#evictCached(account, need, requester.contender);
      if (this.#fits(need)) return;
      const claim = { account, pages: framesNeeded(need, []) };
      const swapRefused = !this.#swapOut(requester, need, this.#orderOf(claim, requester.contender));
      if (this.#fits(need)) return;
      // Pages that have just moved count for their tenants no more: what these hold above their shares is gone.
      const order = this.#orderOf(claim, requester.contender);
      // Leases end before any inferlet gives way, so that no inferlet waits for memory because of a lease.
      if (this.#options.snapshots.leases.giveWayOne((tenant) => this.#tenantGives(tenant, order))) continue;
      // Each iteration ends a lease, preempts a family, ends an inferlet or throws, which bounds the loop.
      const room = this.#room(swapRefused);
      if (!this.#preemptLast(requester, need, room, order)) this.#endLast(requester, need, room, order);
    }
  }

  /** Call after a change that may let a held family return, such as the end of an inferlet. */
  noteChange(): void {
    this.#mayReturn = true;
  }

  /**
   * Ends the preemption of the first family with held calls, by the order. When running families leave no room for that family, a later one that fits
   * may overtake it. The later family then has no protection from the families that it overtakes.
   * @param maxCounted maximum families for which to count the pages of all others; the next call considers the families behind them
   * @returns the family that returns to the device; undefined when none fits, or none of those considered
   */
  next(maxCounted = Number.POSITIVE_INFINITY): Contender | undefined {
    if (!this.holdsCalls) {
      this.#lastRefusal = undefined;
      return undefined;
    }
    const orders = this.#orders();
    const heldFamilies = this.#inOrder(orders);
    const first = heldFamilies[0] as Contender;
    const isBetter = this.#isBetter(first, orders);
    const refused = isBetter ? undefined : this.#lastRefusal?.families;
    const candidates = heldFamilies.filter((each) => !refused?.has(each));
    const considered = new Set(heldFamilies.filter((each) => refused?.has(each)));
    if (candidates.length > 0) this.#mayReturn = false;
    const family = this.#firstThatFits(first, candidates, orders, considered, maxCounted);
    this.#lastRefusal = family
      ? undefined
      : {
          families: considered,
          available: this.#pool.available,
          inTheWay: this.#inTheWay(first, orders),
          share: this.#returningOrder(first, orders).share,
        };
    if (!family) return undefined;
    this.#isStalled = false;
    family.return(heldFamilies[heldFamilies.indexOf(family) - 1]);
    return family;
  }

  /** @param considered receives the candidates that this search has considered, as far as it returns none */
  #firstThatFits(
    first: Contender,
    candidates: readonly Contender[],
    orders: Orders,
    considered: Set<Contender>,
    maxCounted: number,
  ): Contender | undefined {
    const { total } = this.#pool;
    const isStalled = this.#isStalled;
    const firstOrder = this.#returningOrder(first, orders);
    const base = orders();
    // The first in the order come first: a family that precedes a candidate is found at once.
    const running = this.#runningFamilies().sort((a, b) => base.compare(a, b));
    // While a family that precedes all held ones runs, or other tenants' shares keep pages from the first held one, that one may find no room, and a
    // later one that needs less may overtake it.
    const anyPrecedes = running.some((other) => other !== first && other.runs && firstOrder.precedes(other, first));
    const mayOvertake = anyPrecedes || !this.#isInReach(first, firstOrder);
    // Upper bounds on the frames for later candidates of a tenant: these cannot preempt any family that earlier ones of the tenant cannot.
    const maxAvailable = new Map<PageAccount, number>();
    const nowMs = this.#options.now();
    let counted = 0;
    for (const family of candidates) {
      if (family !== first && !mayOvertake) {
        for (const other of candidates) considered.add(other);
        return undefined;
      }
      if (counted >= maxCounted) return undefined;
      considered.add(family);
      if (nowMs < family.heldUntilMs) continue;
      const { account } = family;
      const order = this.#returningOrder(family, orders);
      const isPreceded =
        anyPrecedes ||
        !this.#isInReach(family, order) ||
        running.some((other) => other !== family && (other.isPinned || order.precedes(other, family)));
      if (!isPreceded) return family;
      // Other tenants take no pages from a family within its tenant's share, and grow into their own shares beside it.
      const keepsReserve =
        !isStalled &&
        (order.excess(account) > 0 ||
          running.some((other) => other !== family && other.account === account && order.precedes(other, family)));
      const needed = Math.min(total, family.needed);
      const bound = Math.min(maxAvailable.get(account) ?? Number.POSITIVE_INFINITY, this.#mostFor(family, order));
      if (!mayReturn({ needed, available: bound, total, isPreceded, keepsReserve })) continue;
      counted++;
      const available = this.#gained(family, running, order);
      if (mayReturn({ needed, available, total, isPreceded, keepsReserve })) return family;
      // Add the candidate's own pages, which later candidates may take: `#gained` has not counted them.
      maxAvailable.set(account, Math.min(bound, available + family.resident));
    }
    return undefined;
  }

  /** Upper bound on the frames that `#gained` finds for a family, without a look at the pages of others. */
  #mostFor({ account, spaces }: Contender, order: MemoryOrder<PageAccount>): number {
    let ownFrames = 0;
    for (const { held } of spaces)
      for (const page of held.keys()) if (page.frame >= 0 && page.account === account) ownFrames++;
    return this.#pool.free + order.othersExcess + account.frames - ownFrames;
  }

  /** Frames that the family would have after the preemption of all families behind it that are not protected from it. */
  #gained(family: Contender, running: readonly Contender[], order: MemoryOrder<PageAccount>): number {
    const leavingFamilies = new Set<Contender>();
    for (const other of running) {
      if (other !== family && order.precedes(family, other) && !isProtectedFrom(other, family, order))
        leavingFamilies.add(other);
    }
    let promised = 0;
    // A family that has just returned may hold no page yet, and does not count as running.
    for (const other of this.#options.contenders)
      if (other !== family && !leavingFamilies.has(other)) promised += other.promised;
    // A failing swap refuses pages although it has room. If that room counted, the family would return, be held again at once, and so on without end.
    const room = this.#room(this.#swapFails);
    const gained = framesGained([], this.#movable(leavingFamilies, family, order), room);
    return this.#pool.free + this.#evictable(order) - promised + gained;
  }

  /** False when the family needs pages within the shares of other tenants, so that no preemption gives it room. */
  #isInReach(family: Contender, order: MemoryOrder<PageAccount>): boolean {
    const { total } = this.#pool;
    return Math.min(total, family.resident + family.needed) <= total - order.protectedPages;
  }

  #returningOrder(family: Contender, orders: Orders): MemoryOrder<PageAccount> {
    return orders({ account: family.account, pages: family.needed }, family);
  }

  /** True when `next` has a family to consider. */
  get isDue(): boolean {
    if (!this.holdsCalls) return false;
    // `next` has not considered every held family yet.
    for (const family of this.#heldFamilies()) if (!this.#lastRefusal?.families.has(family)) return true;
    const orders = this.#orders();
    const [first] = this.#inOrder(orders);
    return first !== undefined && this.#isBetter(first, orders);
  }

  /**
   * Call when no family has a call that can run: preempts the families that keep pages from the held ones, so that the first held one returns. When
   * none fits beside the shares of other tenants, the first one that fits without the shares of tenants that wait for memory, or of which no family
   * runs, may take pages of these: their pages move to swap, and their cached prefixes go.
   * @returns false when no family can return now
   */
  stalled(): boolean {
    if (!this.holdsCalls) return false;
    const heldAccounts = new Set([...this.#heldFamilies()].map(({ account }) => account));
    const order = this.#orders()();
    for (const family of this.#options.contenders) {
      const gives = heldAccounts.has(family.account) || order.excess(family.account) > 0;
      if (gives && family.runs && !family.isPinned) this.#preempt(family);
    }
    const orders = this.#orders();
    const heldFamilies = this.#inOrder(orders);
    for (const family of heldFamilies) family.heldUntilMs = Number.NEGATIVE_INFINITY;
    const fits = (family: Contender): boolean => this.#isInReach(family, this.#returningOrder(family, orders));
    if (!heldFamilies.some(fits)) {
      const forced = heldFamilies.find((family) => {
        family.isForced = true;
        family.isForced = fits(family);
        return family.isForced;
      });
      if (!forced) return false;
    }
    this.#isStalled = true;
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

  /**
   * The orders of frames now, for claims or for none. A claimant that is forced finds no share of tenants that wait for memory, or of which no family
   * runs. All tenants are read once, however many orders are made.
   */
  #orders(): Orders {
    let ordinary: TenantHoldings<PageAccount> | undefined;
    let forced: TenantHoldings<PageAccount> | undefined;
    return (claim, claimant) => {
      if (claimant?.isForced) {
        forced ??= this.#forcedHoldings();
        return new MemoryOrder(forced, claim);
      }
      ordinary ??= this.#holdings();
      return new MemoryOrder(ordinary, claim);
    };
  }

  #orderOf(claim?: TenantClaim<PageAccount>, claimant?: Contender): MemoryOrder<PageAccount> {
    return this.#orders()(claim, claimant);
  }

  #holdings(mayHaveShare = (_account: PageAccount): boolean => true): TenantHoldings<PageAccount> {
    const nowMs = this.#options.now();
    const awake = new Set<PageAccount>();
    for (const space of this.#options.spaces) if (!space.idle) awake.add(space.account);
    for (const account of this.#options.accounts) {
      if (awake.has(account)) account.idleSinceMs = undefined;
      else account.idleSinceMs ??= nowMs;
    }
    return new TenantHoldings(
      this.#pool.total,
      this.#options.accounts.all().map((account) => ({
        account,
        held: account.frames,
        wants: account.heldCalls > 0 || account.swappedOut > 0,
        isPresent: account.sharesFrames(nowMs) && mayHaveShare(account),
      })),
    );
  }

  #forcedHoldings(): TenantHoldings<PageAccount> {
    const running = new Set<PageAccount>();
    for (const { account, runs } of this.#options.contenders) if (runs) running.add(account);
    return this.#holdings((account) => account.heldCalls === 0 && running.has(account));
  }

  /** The order of frames and swap together. */
  #totalOrderOf(claim: TenantClaim<PageAccount>): MemoryOrder<PageAccount> {
    const nowMs = this.#options.now();
    const holdings = this.#options.accounts.all().map((account) => ({
      account,
      held: account.frames + account.swappedOut,
      wants: account.heldCalls > 0,
      isPresent: account.isPresent(nowMs),
    }));
    const capacity = this.#pool.total + (this.#options.swap?.stats().capacity ?? 0);
    return new MemoryOrder(new TenantHoldings(capacity, holdings), claim);
  }

  /** True when a claim may end leases of the tenant. */
  #tenantGives(tenant: string, order: MemoryOrder<PageAccount>): boolean {
    const account = this.#options.accounts.find(tenant);
    return account !== undefined && order.gives(account, account.frames);
  }

  /** True when `a` gets memory before `b` now. */
  precedence(): (a: Contender, b: Contender) => boolean {
    const order = this.#orderOf();
    return (a, b) => order.precedes(a, b);
  }

  /** Frames that are free, or that hold cached prefixes which a claim of the tenant may evict. */
  availableTo(account: PageAccount): number {
    return this.#pool.free + this.#evictable(this.#orderOf({ account, pages: 0 }));
  }

  #evictable(order: MemoryOrder<PageAccount>): number {
    let pages = 0;
    for (const account of this.#options.accounts) pages += Math.min(account.cached, order.takeable(account));
    return pages;
  }

  #evictCached(account: PageAccount, need: FrameNeed, claimant?: Contender): void {
    const tree = this.#options.prefixes;
    if (!tree) return;
    // A claim copies only pages that its requester holds, and none of these is evicted here. So evictions do not change the need.
    const needed = framesNeeded(need, []);
    let order: MemoryOrder<PageAccount> | undefined;
    while (needed > this.#pool.free && this.#pool.cached > 0) {
      order ??= this.#orderOf({ account, pages: needed }, claimant);
      const chosen = order.evicted(this.#cachedBy(), needed - this.#pool.free);
      let anyLeft = false;
      for (const each of chosen.accounts) {
        if (needed <= this.#pool.free) return;
        anyLeft = this.#evict(tree, each, Math.min(chosen.pages, needed - this.#pool.free)) || anyLeft;
      }
      if (!anyLeft) return;
    }
  }

  /** Evicts cached pages of the claiming tenant, although another tenant holds more than its share and cannot give enough now. */
  #evictOwn(account: PageAccount, need: FrameNeed): boolean {
    const tree = this.#options.prefixes;
    if (!tree || account.cached === 0) return false;
    return this.#evict(tree, account, framesNeeded(need, []) - this.#pool.free);
  }

  *#cachedBy(): Generator<{ account: PageAccount; held: number }> {
    for (const account of this.#options.accounts) if (account.cached > 0) yield { account, held: account.frames };
  }

  /** Evicts up to `pages` cached pages of a tenant; more when pages in use follow the only ones that may leave. @returns false when none left */
  #evict(tree: PrefixTree<Page, PageAccount>, account: PageAccount, pages: number): boolean {
    const wantedFree = this.#pool.free + pages;
    let anyLeft = false;
    for (const page of tree.evictLeaves(account, isCached)) {
      this.#pool.abandon(page);
      anyLeft = true;
      if (this.#pool.free >= wantedFree) return true;
    }
    if (account.cached === 0) return anyLeft;
    for (const page of tree.evictBlocked(account, isCached)) {
      this.#pool.abandon(page);
      anyLeft = true;
    }
    return anyLeft;
  }

  /** Preempted families with held calls. */
  *#heldFamilies(): Generator<Contender> {
    for (const family of this.#options.contenders) if (family.isAway && family.heldCalls > 0) yield family;
  }

  /**
   * Preempted families with held calls, by the order. The pages that the oldest of a tenant needs count for the tenant, because they show what it would
   * hold: a tenant that has lost all its pages does not precede others for that.
   */
  #inOrder(orders: Orders): Contender[] {
    const heldFamilies = [...this.#heldFamilies()].sort((a, b) => (isNewer(a, b) ? 1 : -1));
    if (heldFamilies.length < 2) return heldFamilies;
    /** Excess by tenant, the need of its oldest held family included. */
    const excesses = new Map<PageAccount, number>();
    for (const family of heldFamilies) {
      const { account } = family;
      if (!excesses.has(account)) excesses.set(account, this.#returningOrder(family, orders).excess(account));
    }
    const excess = ({ account }: Contender): number => excesses.get(account) ?? 0;
    // Sorting keeps the order of age among equals.
    return heldFamilies.sort((a, b) => excess(a) - excess(b));
  }

  /** True when memory has improved for the first held family since its refusal, or when `next` has not considered that family yet. */
  #isBetter(first: Contender, orders: Orders): boolean {
    const lastRefusal = this.#lastRefusal;
    if (this.#mayReturn || !lastRefusal?.families.has(first) || this.#pool.available > lastRefusal.available)
      return true;
    if (this.#returningOrder(first, orders).share > lastRefusal.share) return true;
    return this.#inTheWay(first, orders) < lastRefusal.inTheWay;
  }

  /** Number of other families that keep `ownFamily` from pages now: those that precede it, protected or pinned ones. */
  #inTheWay(ownFamily: Contender, orders: Orders): number {
    const order = this.#returningOrder(ownFamily, orders);
    return this.#runningFamilies(ownFamily).filter(
      (other) => other.protectedSteps > 0 || other.isPinned || order.precedes(other, ownFamily),
    ).length;
  }

  /** Families, without `ownFamily`, that hold pages and may go on by themselves, or whose pages are in use. */
  #runningFamilies(ownFamily?: Contender): Contender[] {
    return [...this.#options.contenders].filter((family) => family !== ownFamily && (family.runs || family.isPinned));
  }

  /** The holders whose pages may go to swap once `preemptedFamilies` are preempted, without the space or the family `excluded`. */
  #movable(
    preemptedFamilies: ReadonlySet<Contender>,
    excluded: PageSpace | Contender,
    order: MemoryOrder<PageAccount>,
  ): IdleHolders & { readonly spaces: PageSpace[] } {
    const spaces = [...this.#options.spaces].filter((space) => {
      if (space === excluded || space.contender === excluded) return false;
      return space.movable || (space.pins === 0 && preemptedFamilies.has(space.contender));
    });
    return {
      spaces,
      snapshots: this.#options.snapshots.held,
      // Cached prefixes leave before pages that anything holds.
      takeable: (account) => {
        const pages = order.takeable(account);
        return pages - Math.min(account.cached, pages === Number.POSITIVE_INFINITY ? 0 : pages);
      },
    };
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
  #swapOut(requester: PageSpace, need: FrameNeed, order: MemoryOrder<PageAccount>): boolean {
    const { snapshots, swap } = this.#options;
    let hasSwapRoom = swap !== undefined;
    for (const page of this.#movablePages(requester, order)) {
      if (this.#fits(need)) break;
      if (snapshots.leases.isPinned(page) || !order.gives(page.account, page.account.frames)) continue;
      // An empty page leaves even when swap has no room.
      if (page.filled !== 0 && !hasSwapRoom) continue;
      if (!this.moveOut(requester, page)) hasSwapRoom = false;
    }
    return hasSwapRoom;
  }

  /** Pages that may go to swap, those of snapshots first: no inferlet waits for them. */
  *#movablePages(requester: PageSpace, order: MemoryOrder<PageAccount>): Generator<Page> {
    yield* this.#options.snapshots.leavingPages();
    const idle = this.#movable(NO_FAMILIES, requester, order);
    idle.spaces.sort((a, b) => order.compare(b, a));
    yield* swappable(idle);
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

  /** Makes sure that a frame is free for the tenant; evicts cached prefixes if need be. False when that is not enough. */
  freeOne(account: PageAccount): boolean {
    this.#evictCached(account, ONE_FRAME);
    return this.#fits(ONE_FRAME);
  }

  /**
   * Preempts the last families of the order whose pages then find room in swap. Returns false when that is not enough.
   * @throws CallHeld when only families that are protected, or whose pages are in use, could give enough
   */
  #preemptLast(requester: PageSpace, need: FrameNeed, room: SwapRoom, order: MemoryOrder<PageAccount>): boolean {
    if (!this.#canPreempt) return false;
    const ownFamily = requester.contender;
    const runningFamilies = this.#runningFamilies(ownFamily);
    // The policy preempts no family that precedes the requester's. It needs them to see if the requester's family is the first.
    const consideredFamilies = runningFamilies.filter(
      (other) => order.precedes(ownFamily, other) || (!other.isAway && !other.isPinned),
    );
    const victims = choosePreempted(
      ownFamily,
      consideredFamilies,
      new PreemptionShortfall(this.#claim(requester, need, NO_FAMILIES, room, order)),
      order,
    );
    for (const family of victims ?? []) this.#preempt(family);
    if (victims && victims.length > 0) return true;
    const later = new Set(runningFamilies.filter((other) => order.precedes(ownFamily, other)));
    const { free, idle } = this.#claim(requester, need, later, room, order);
    if (framesNeeded(need, []) - free - framesGained([], idle, room) > 0) return false;
    if (this.#evictOwn(ownFamily.account, need)) return true;
    throw this.#hold(requester, need);
  }

  get #canPreempt(): boolean {
    return this.#options.swap !== undefined && this.#options.preempt !== undefined;
  }

  /** @param preemptedFamilies families that count as preempted */
  #claim(
    requester: PageSpace,
    need: FrameNeed,
    preemptedFamilies: ReadonlySet<Contender>,
    room: SwapRoom,
    order: MemoryOrder<PageAccount>,
  ): Claim {
    return { requester, need, free: this.#pool.free, idle: this.#movable(preemptedFamilies, requester, order), room };
  }

  /** True when the request fits after all of `runningFamilies` have given their pages back. */
  #fitsLater(requester: PageSpace, need: FrameNeed, families: ReadonlySet<Contender>, room: SwapRoom): boolean {
    const spaces = [...this.#options.spaces].filter(
      (space) => space !== requester && (space.movable || families.has(space.contender)),
    );
    const idle = { spaces, snapshots: this.#options.snapshots.held, takeable: () => Number.POSITIVE_INFINITY };
    const gained = framesGained([], idle, room);
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
   * Ends the last inferlets of the order, so that the request fits.
   * @throws CallHeld when waiting helps instead; CallFault as `DeviceMemory.claim`
   */
  #endLast(requester: PageSpace, need: FrameNeed, room: SwapRoom, order: MemoryOrder<PageAccount>): void {
    const ownFamily = requester.contender;
    const pages = framesNeeded(need, []);
    const otherSpaces = [...this.#options.spaces].filter((space) => space !== requester && space.heldPages > 0);
    const runningFamilies = this.#canPreempt ? this.#runningFamilies(ownFamily) : [];
    const later = new Set(runningFamilies.filter((other) => order.precedes(ownFamily, other)));
    const claim = this.#claim(requester, need, later, room, order);
    const endingOrder = this.#totalOrderOf({ account: ownFamily.account, pages });
    const decision = chooseVictims(requester, otherSpaces, new EndingShortfall(claim), endingOrder);
    if (decision.kind !== 'terminate' && this.#evictOwn(ownFamily.account, need)) return;
    // Families that precede this one end, or wait on I/O, at some time. So waiting helps unless the requester's own family holds too much.
    const mayWait = (): boolean =>
      runningFamilies.length > later.size && this.#fitsLater(requester, need, new Set(runningFamilies), UNLIMITED_ROOM);
    if (decision.kind !== 'terminate' && this.#lacksOnlyShares(claim, order)) {
      ownFamily.heldUntilMs = this.#options.now() + RETRY_MS;
      throw this.#hold(requester, need);
    }
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
        // Pages that a later family is restoring from disk can move to swap soon, so waiting helps.
        if ([...later].some(({ isPinned }) => isPinned) && this.#fitsLater(requester, need, later, room))
          throw this.#hold(requester, need);
        // A family must not end one of its members for pages that it would get by waiting.
        if (decision.victims.some(({ contender }) => contender === ownFamily) && mayWait())
          throw this.#hold(requester, need);
        for (const victim of decision.victims) {
          this.#end(
            victim,
            `memory pressure: ${describe(victim, requester, otherSpaces.length + 1, endingOrder)} gave way to ${nameFor(victim, requester)}`,
          );
        }
    }
  }

  /** True when the claim lacks only pages within the shares of other tenants: it fits once these tenants need their pages no more. */
  #lacksOnlyShares({ need, free, idle }: Claim, order: MemoryOrder<PageAccount>): boolean {
    if (this.#options.preempt === undefined || order.protectedPages === 0) return false;
    const gained = this.#evictable(order) + framesGained([], idle, UNLIMITED_ROOM);
    const missing = framesNeeded(need, []) - free - gained;
    return missing > 0 && missing <= order.protectedPages;
  }

  #end(space: PageSpace, cause: string): void {
    this.#terminations++;
    space.terminationCause = cause;
    this.#options.terminate(space, cause);
    if (space.heldPages > 0) throw new Error('an inferlet was ended and kept its pages');
    this.noteChange();
  }
}

/** Milliseconds for which a family stays away whose claim lacked pages within the shares of other tenants: it would lack them again at once. */
const RETRY_MS = 20;

const NO_FAMILIES: ReadonlySet<Contender> = new Set();
const ONE_FRAME: FrameNeed = { frames: 1, copies: new Map() };
const UNLIMITED_ROOM: SwapRoom = { pages: Number.POSITIVE_INFINITY, reusable: () => true };

/** Names a victim by what decided: the share of its tenant, or its age. */
function describe(
  { account }: PageSpace,
  requester: PageSpace,
  inferlets: number,
  order: MemoryOrder<PageAccount>,
): string {
  const excess = order.excess(account);
  if (account === requester.account || excess === 0) return `the newest of ${inferlets} inferlets`;
  return `the newest inferlet of a tenant that holds ${account.frames + account.swappedOut} pages, ${excess} more than its share,`;
}

/** Names the inferlet that `victim` gave way to. Names of other tenants' functions stay secret. */
function nameFor(victim: PageSpace, { owner }: PageSpace): string {
  if (owner.tenant !== victim.owner.tenant) return 'an invocation of another tenant';
  return owner.functionName ? `an earlier invocation of ${owner.functionName}` : 'an earlier invocation';
}
