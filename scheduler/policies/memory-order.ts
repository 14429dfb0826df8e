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
  /** Pages above the share, by tenant. */
  readonly #excess = new Map<A, number>();
  readonly #absent = new Set<A>();
  readonly #claimant: A | undefined;
  readonly #protectedPages: number;
  /** True when the claim leaves its tenant within its share, and another tenant holds more than its own. */
  readonly #othersGiveFirst: boolean;

  /** @param capacity pages of the memory */
  constructor(capacity: number, holdings: Iterable<TenantHolding<A>>, claim?: TenantClaim<A>) {
    const counted = [...holdings].filter(({ account, held, wants }) => held > 0 || wants || account === claim?.account);
    const sharers = counted.filter(({ account, isPresent }) => isPresent || account === claim?.account);
    this.#claimant = claim?.account;
    this.share = Math.floor(capacity / Math.max(1, sharers.length));
    let protectedPages = 0;
    let othersExcess = 0;
    for (const { account, held, isPresent } of counted) {
      const isClaimant = account === claim?.account;
      if (!isPresent && !isClaimant) {
        this.#absent.add(account);
        this.#excess.set(account, held);
        othersExcess += held;
        continue;
      }
      this.#excess.set(account, Math.max(0, held + (isClaimant ? claim.pages : 0) - this.share));
      if (isClaimant) continue;
      protectedPages += Math.min(held, this.share);
      othersExcess += Math.max(0, held - this.share);
    }
    this.#protectedPages = protectedPages;
    this.#othersGiveFirst = claim !== undefined && this.excess(claim.account) === 0 && othersExcess > 0;
  }

  /** Pages that the tenant holds above its share, the claim included. */
  excess(account: A): number {
    return this.#excess.get(account) ?? 0;
  }

  /** Pages of other tenants that the claim cannot take, because they are within the shares of these tenants. */
  get protectedPages(): number {
    return this.#protectedPages;
  }

  /** Maximum pages that the claim may take from a tenant without a decision about its families. */
  takeable(account: A): number {
    return account === this.#claimant ? Number.POSITIVE_INFINITY : this.excess(account);
  }

  /** True when a tenant that now holds `held` pages may lose one of them to the claim. */
  gives(account: A, held: number): boolean {
    return account === this.#claimant || this.#absent.has(account) || held > this.share;
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
   * Chooses the tenant that loses cached pages to the claim: the one with most pages above its share, else the claiming tenant itself. A tenant within
   * its share keeps its cached pages while another one holds more than its own: that one's other pages give way first.
   * @param candidates tenants with cached pages, and the pages that each holds now
   * @returns undefined when no candidate gives way; otherwise the number of pages after which to choose anew
   */
  evicted(
    candidates: Iterable<{ readonly account: A; readonly held: number; readonly missing: number }>,
  ): { readonly account: A; readonly pages: number } | undefined {
    let [first, firstExcess, secondExcess] = [undefined as A | undefined, -1, 0];
    for (const { account, held, missing } of candidates) {
      if (!this.gives(account, held) || (account === this.#claimant && this.#othersGiveFirst)) continue;
      const shareOfIts = this.#absent.has(account) ? 0 : this.share;
      const excess = Math.max(0, held + (account === this.#claimant ? missing : 0) - shareOfIts);
      if (excess > firstExcess) [first, firstExcess, secondExcess] = [account, excess, Math.max(0, firstExcess)];
      else secondExcess = Math.max(secondExcess, excess);
    }
    return first === undefined ? undefined : { account: first, pages: Math.max(1, firstExcess - secondExcess) };
  }
}
