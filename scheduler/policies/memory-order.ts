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
export interface AccountHolder<A> extends Place {
  readonly account: A;
}

/** The pages of one tenant, as {@link MemoryOrder} sees them. */
export interface TenantHolding<A> {
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
