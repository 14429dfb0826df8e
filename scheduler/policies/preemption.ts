/**
 * Number of steps that a returned family makes before others may preempt it again. During this time only the first family in the order may, the
 * families that the returned one overtook, and families within their share if the returned one is above its own.
 */
export const PROTECTED_TOKENS = 32;

/**
 * Device steps after which a returned family loses its protection even if it made fewer steps itself. A family that computes or waits for something
 * else must not keep its memory from others for longer. The factor 8 suffices for a family that takes part in one of eight device steps.
 */
export const PROTECTED_DEVICE_STEPS = 8 * PROTECTED_TOKENS;

/**
 * While a family that precedes it runs, a family returns only when one of 2^RESERVE_SHIFT frames stays free beyond its need, so that others can grow.
 * Its need is enough for the oldest family of a tenant while it stays within its tenant's share, and for any while nothing can run.
 */
export const RESERVE_SHIFT = 4;

/** A family: an invocation with its children, which leave the device and return together. */
export interface Preemptible<A> extends AccountHolder<A> {
  /** Steps that the family still has to make before it may be preempted again; 0 when it has no protection. */
  readonly protectedSteps: number;
  /** When this family returned, older families may have been away because they did not fit. This is the newest of them. */
  readonly overtook?: Place | undefined;
}

/**
 * True when a family that returned a short while ago is protected from `other`. It is not protected from `overtook` and older families, nor, while
 * its tenant holds more than its share, from a family of a tenant within its own.
 */
export function isProtectedFrom<A>(family: Preemptible<A>, other: AccountHolder<A>, order: MemoryOrder<A>): boolean {
  const { account, protectedSteps, overtook } = family;
  if (protectedSteps === 0 || (order.excess(other.account) === 0 && order.excess(account) > 0)) return false;
  return !overtook || isNewer(other, overtook);
}

/**
 * Chooses the families to preempt for a request that does not fit: by `order`, the last first, and no more than needed. No family that precedes the
 * requester is chosen. A protected family is chosen last, and only when the requester is the first of its tenant (or of all, for another tenant's family),
 * or one from which the protected family has no protection.
 *
 * @param runningFamilies other families that hold memory and may go on, in any order
 * @param shortfall the request's shortfall while all of these families stay; the choice changes it
 * @returns undefined when the families that may be chosen hold too little
 */
export function choosePreempted<A, F extends Preemptible<A>>(
  requester: AccountHolder<A>,
  runningFamilies: readonly F[],
  shortfall: Shortfall<F>,
  order: MemoryOrder<A>,
): readonly F[] | undefined {
  const preceding = runningFamilies.filter((other) => order.precedes(other, requester));
  const isFirstOfItsTenant = !preceding.some(({ account }) => account === requester.account);
  const mayLeave = (other: F): boolean => {
    const isFirst = other.account === requester.account ? isFirstOfItsTenant : preceding.length === 0;
    return order.precedes(requester, other) && (isFirst || !isProtectedFrom(other, requester, order));
  };
  const candidates = runningFamilies.filter(mayLeave).sort((a, b) => {
    const [isProtectedA, isProtectedB] = [a.protectedSteps > 0, b.protectedSteps > 0];
    if (isProtectedA !== isProtectedB) return isProtectedA ? 1 : -1;
    return order.compare(b, a);
  });
  const departed = leaveInTurn(candidates, shortfall);
  if (shortfall.missing > 0) return undefined;
  // A family whose pages are not needed stays.
  return withoutSpared(departed, shortfall, () => shortfall.missing <= 0);
}

/** State of the device when a family asks to return. */
interface Return {
  /** Pages that the family needs on the device to go on. */
  readonly needed: number;
  /** Frames that are free, or that would be free if no family behind this one ran. */
  readonly available: number;
  /** Frames of the pool. */
  readonly total: number;
  /** True when a family that precedes this one runs. Otherwise the returning family is the first that can go on, and returns at once. */
  readonly isPreceded: boolean;
  /** True when families that run may grow and take pages from this one. */
  readonly keepsReserve: boolean;
}

/** True when a family may return. The reserve keeps the family from being preempted again right away. */
export function mayReturn({ needed, available, total, isPreceded, keepsReserve }: Return): boolean {
  if (!isPreceded) return true;
  const reserve = keepsReserve ? Math.min(total >> RESERVE_SHIFT, Math.max(0, total - needed)) : 0;
  return needed + reserve <= available;
}

/** An invocation's place in the order of age. */
export interface Place {
  /** Number in the order of arrivals; an older invocation has a smaller number. Children carry the arrival of their root. */
  readonly arrival: number;
  /** Orders invocations with the same arrival: the one that began later has a larger number. No two invocations share both numbers. */
  readonly order: number;
}

/** True when `a` is newer than `b`. */
export function isNewer(a: Place, b: Place): boolean {
  return a.arrival === b.arrival ? a.order > b.order : a.arrival > b.arrival;
}

/** A family or an inferlet, whose memory counts for the account of its tenant. */
interface AccountHolder<A> extends Place {
  readonly account: A;
}

/** The pages of one tenant, as {@link MemoryOrder} sees them. */
interface TenantHolding<A> {
  /** Identifies the tenant. */
  readonly account: A;
  /** Pages that count for the tenant. */
  readonly held: number;
  /** True when one of the tenant's families waits for memory. */
  readonly wants: boolean;
  /** False when the tenant runs nothing and has run nothing recently: it has no share, and its cached pages and exports give way first. */
  readonly isPresent: boolean;
}

/** A claim for pages that is being decided. */
export interface TenantClaim<A> {
  readonly account: A;
  readonly pages: number;
}

/** The pages of all tenants at one moment. Every order of that moment is made from it, in a time that does not grow with the number of tenants. */
export class TenantHoldings<A> {
  readonly capacity: number;
  /** Number of tenants that hold or want pages and are present. */
  readonly sharers: number;
  /** Pages of all tenants. */
  readonly pages: number;
  /** Tenants that hold or want pages. */
  readonly #tenants = new Map<A, TenantHolding<A>>();
  /** By share, the sum of the pages that present tenants hold within it. Orders of one moment have at most two different shares. */
  readonly #within = new Map<number, number>();

  /** @param capacity pages of the memory */
  constructor(capacity: number, holdings: Iterable<TenantHolding<A>>) {
    this.capacity = capacity;
    let [sharers, pages] = [0, 0];
    for (const holding of holdings) {
      if (holding.held === 0 && !holding.wants) continue;
      this.#tenants.set(holding.account, holding);
      if (holding.isPresent) sharers++;
      pages += holding.held;
    }
    this.sharers = sharers;
    this.pages = pages;
  }

  /** Undefined for a tenant that neither holds nor wants pages. */
  of(account: A): TenantHolding<A> | undefined {
    return this.#tenants.get(account);
  }

  /** Pages that present tenants hold within a share. */
  within(share: number): number {
    let pages = this.#within.get(share);
    if (pages === undefined) {
      pages = 0;
      for (const { held, isPresent } of this.#tenants.values()) if (isPresent) pages += Math.min(held, share);
      this.#within.set(share, pages);
    }
    return pages;
  }
}

/**
 * The order in which tenants and their families give memory back, at the moment of one decision. Each tenant that holds or wants pages has an equal
 * share of the memory. A family of the tenant with more pages above its share gives way first, whatever its age; among tenants with equally
 * many, and inside one tenant, the newest family gives way first. So a tenant alone decides by age (first come, first served: Pie, SOSP '25, section 5.3).
 *
 * The pages of a claim count for the tenant that claims. A tenant takes from another one only pages above the other one's share. If a claim leaves
 * its tenant within its share, other tenants therefore hold enough pages above theirs: the oldest family within its share always advances.
 */
export class MemoryOrder<A> {
  /** Pages of an equal part of the memory. */
  readonly share: number;
  /** Pages of other tenants that the claim cannot take, because they are within the shares of these tenants. */
  readonly protectedPages: number;
  /** Pages that other tenants hold above their shares. */
  readonly othersExcess: number;
  readonly #holdings: TenantHoldings<A>;
  readonly #claim: TenantClaim<A> | undefined;
  readonly #claimant: A | undefined;
  /** True when the claim leaves its tenant within its share, and another tenant holds more than its own. */
  readonly #othersGiveFirst: boolean;

  constructor(holdings: TenantHoldings<A>, claim?: TenantClaim<A>) {
    this.#holdings = holdings;
    this.#claim = claim;
    this.#claimant = claim?.account;
    const own = claim && holdings.of(claim.account);
    // The tenant that claims has a share, even when it held nothing before.
    const sharers = holdings.sharers + (claim && !own?.isPresent ? 1 : 0);
    this.share = Math.floor(holdings.capacity / Math.max(1, sharers));
    const ownWithin = own?.isPresent ? Math.min(own.held, this.share) : 0;
    this.protectedPages = holdings.within(this.share) - ownWithin;
    this.othersExcess = holdings.pages - (own?.held ?? 0) - this.protectedPages;
    this.#othersGiveFirst = claim !== undefined && this.excess(claim.account) === 0 && this.othersExcess > 0;
  }

  /** Pages that the tenant holds above its share, the claim included. */
  excess(account: A): number {
    const holding = this.#holdings.of(account);
    if (account === this.#claimant) return Math.max(0, (holding?.held ?? 0) + (this.#claim?.pages ?? 0) - this.share);
    if (!holding) return 0;
    return holding.isPresent ? Math.max(0, holding.held - this.share) : holding.held;
  }

  /** Maximum pages that the claim may take from a tenant without a decision about its families. */
  takeable(account: A): number {
    return account === this.#claimant ? Number.POSITIVE_INFINITY : this.excess(account);
  }

  /** True when a tenant that now holds `held` pages may lose one of them to the claim. */
  gives(account: A, held: number): boolean {
    return account === this.#claimant || held > this.share || this.#isAbsent(account);
  }

  /** True when `a` keeps its memory longer than `b`. A strict total order of families, and of inferlets. */
  precedes(a: AccountHolder<A>, b: AccountHolder<A>): boolean {
    return this.compare(a, b) < 0;
  }

  /** Negative when `a` keeps its memory longer than `b`. */
  compare(a: AccountHolder<A>, b: AccountHolder<A>): number {
    if (a.account !== b.account) {
      const difference = this.excess(a.account) - this.excess(b.account);
      if (difference !== 0) return difference;
    }
    if (isNewer(a, b)) return 1;
    return isNewer(b, a) ? -1 : 0;
  }

  /**
   * Chooses the tenants that lose cached pages to the claim: those with most pages above their share, else the claiming tenant itself. A tenant within
   * its share keeps its cached pages while another one holds more than its own: that one's other pages give way first.
   * @param candidates tenants with cached pages, and the pages that each holds now
   * @param missing pages that the claim still lacks
   * @returns tenants that hold equally much above their shares (none when no candidate gives way), and the pages of each after which to choose anew
   */
  evicted(
    candidates: Iterable<{ readonly account: A; readonly held: number }>,
    missing: number,
  ): { readonly accounts: readonly A[]; readonly pages: number } {
    let accounts: A[] = [];
    let [largest, second] = [-1, 0];
    for (const { account, held } of candidates) {
      if (!this.gives(account, held) || (account === this.#claimant && this.#othersGiveFirst)) continue;
      const share = this.#isAbsent(account) ? 0 : this.share;
      const excess = Math.max(0, held + (account === this.#claimant ? missing : 0) - share);
      if (excess > largest) {
        accounts = [account];
        [largest, second] = [excess, Math.max(0, largest)];
      } else if (excess === largest) accounts.push(account);
      else second = Math.max(second, excess);
    }
    return { accounts, pages: Math.max(1, Math.min(largest - second, Math.ceil(missing / accounts.length))) };
  }

  #isAbsent(account: A): boolean {
    return account !== this.#claimant && this.#holdings.of(account)?.isPresent === false;
  }
}

type MemoryDecision<H> =
  /** The request does not fit even without all other invocations. It fails, and no invocation is ended. */
  | { readonly kind: 'refuse' }
  /** The request does not fit beside the invocations that precede it: end the requester. */
  | { readonly kind: 'requester' }
  /** The request fits once these invocations have ended; the first to end comes first. */
  | { readonly kind: 'terminate'; readonly victims: readonly H[] };

/**
 * The pages that a request lacks when some holders of memory leave and the others stay. A choice moves one holder at a time, so that the sum can be
 * updated. Counting all pages anew each time would take time that grows with the square of the number of holders.
 */
export interface Shortfall<H> {
  /** Pages still missing without the holders that left; 0 or less when the request fits. Never grows as holders leave. */
  readonly missing: number;
  /** Counts a holder as one that leaves. */
  leave(holder: H): void;
  /** Counts a holder that left as one that stays again. */
  stay(holder: H): void;
}

/** An inferlet that holds memory. */
export interface Endable<A> extends AccountHolder<A> {
  /** Pages that it holds, on the device or swapped out. */
  readonly heldPages: number;
}

/**
 * Chooses the inferlets to end when a request for memory does not fit, by `order`: those of the tenant with most pages above its share first, and of
 * each tenant the newest first. No inferlet that precedes the requester is ended, and another tenant loses inferlets only while it holds more than
 * its share. No inferlet is ended in vain: if the request would still not fit, none ends, and an inferlet whose end frees no page stays.
 *
 * @param others all other inferlets that hold memory, in any order
 * @param shortfall the request's shortfall while all others stay; the choice changes it
 */
export function chooseVictims<A, H extends Endable<A>>(
  requester: AccountHolder<A>,
  others: readonly H[],
  shortfall: Shortfall<H>,
  order: MemoryOrder<A>,
): MemoryDecision<H> {
  const departed = leaveInTurn(endingOrder(requester, others, order), shortfall);
  if (shortfall.missing > 0) {
    const leaving = new Set(departed);
    for (const other of others) if (!leaving.has(other)) shortfall.leave(other);
    return { kind: shortfall.missing > 0 ? 'refuse' : 'requester' };
  }
  // Spares only holders whose end frees no page: the newest ends first, even when the end of one older holder alone would be enough.
  const missingWithoutDeparted = shortfall.missing;
  return {
    kind: 'terminate',
    victims: withoutSpared(departed, shortfall, () => shortfall.missing === missingWithoutDeparted),
  };
}

/** A tenant's inferlets that may end, with the newest last, and the excess that it has left. */
interface Ending<H> {
  excess: number;
  readonly isRequesters: boolean;
  readonly holders: H[];
}

/** The inferlets that may end for the requester, in turn. Each end lowers the excess of its tenant, so that the next may belong to another one. */
function* endingOrder<A, H extends Endable<A>>(
  requester: AccountHolder<A>,
  others: readonly H[],
  order: MemoryOrder<A>,
): Generator<H> {
  const byAccount = new Map<A, Ending<H>>();
  for (const other of others.filter((each) => order.precedes(requester, each)).sort((a, b) => order.compare(a, b))) {
    const { account } = other;
    const tenant = byAccount.get(account);
    if (tenant) tenant.holders.push(other);
    else
      byAccount.set(account, {
        excess: order.excess(account),
        isRequesters: account === requester.account,
        holders: [other],
      });
  }
  // The tenant that loses the next inferlet comes last.
  const tenants = [...byAccount.values()].filter(mayEnd).sort((a, b) => (endsBefore(a, b) ? 1 : -1));
  for (let tenant = tenants.pop(); tenant; tenant = tenants.pop()) {
    const holder = tenant.holders.pop() as H;
    tenant.excess -= holder.heldPages;
    if (mayEnd(tenant)) insert(tenants, tenant);
    yield holder;
  }
}

const mayEnd = <H>({ excess, isRequesters, holders }: Ending<H>): boolean =>
  holders.length > 0 && (excess > 0 || isRequesters);

function endsBefore<H extends Place>(a: Ending<H>, b: Ending<H>): boolean {
  const [excessA, excessB] = [Math.max(0, a.excess), Math.max(0, b.excess)];
  return excessA === excessB ? isNewer(a.holders.at(-1) as H, b.holders.at(-1) as H) : excessA > excessB;
}

/** Inserts a tenant into a sorted list by binary search. */
function insert<H extends Place>(tenants: Ending<H>[], tenant: Ending<H>): void {
  let [low, high] = [0, tenants.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endsBefore(tenant, tenants[middle] as Ending<H>)) low = middle + 1;
    else high = middle;
  }
  tenants.splice(low, 0, tenant);
}

/**
 * Lets holders leave one after another until the request fits, or all have left.
 * @returns the holders that left
 */
function leaveInTurn<H>(inTurn: Iterable<H>, shortfall: Shortfall<H>): readonly H[] {
  const departed: H[] = [];
  if (shortfall.missing <= 0) return departed;
  for (const holder of inTurn) {
    shortfall.leave(holder);
    departed.push(holder);
    if (shortfall.missing <= 0) break;
  }
  return departed;
}

/**
 * Spares holders that need not leave. Lets one holder after another stay, from the last to the first, and makes it leave again when `isEnough` is
 * false without it.
 *
 * @returns the holders that must leave, in their order
 */
function withoutSpared<H>(departed: readonly H[], shortfall: Shortfall<H>, isEnough: () => boolean): readonly H[] {
  const victims: H[] = [];
  for (const departedHolder of departed.toReversed()) {
    shortfall.stay(departedHolder);
    if (isEnough()) continue;
    shortfall.leave(departedHolder);
    victims.push(departedHolder);
  }
  return victims.reverse();
}
