import { leaseToEnd, type Pinned, pinShare } from '#scheduler/policies/leases.ts';
import type { LeaseEnd } from '#wit/generated/host.ts';
import { fault } from './fault.ts';
import type { Page, PageSnapshot } from './pool.ts';

/** Maximum duration of a lease, 1 hour: it bounds how long a tenant that has gone away pins pages. */
const MAX_LEASE_MS = 60 * 60 * 1000;

/** Leases of all tenants together pin at most one in this many frames of the pool. */
const PINNABLE_PART = 4;

/** A promise to keep (pin) a snapshot's pages on the device until a time, unless inferlets need their frames earlier. */
export class Lease {
  readonly #untilMs: number;
  readonly #now: () => number;
  /** True when the lease ended early because inferlets needed the frames. */
  #hasGivenWay = false;

  constructor(untilMs: number, now: () => number) {
    this.#untilMs = untilMs;
    this.#now = now;
  }

  /** Milliseconds that the lease still lasts; 0 once it has ended. */
  get leftMs(): number {
    return this.#hasGivenWay ? 0 : Math.max(0, this.#untilMs - this.#now());
  }

  /** The reason why the lease has ended; undefined while it lasts. */
  get ended(): LeaseEnd | undefined {
    return this.status.ended;
  }

  /** `leftMs` and `ended` by one reading of the clock: the two getters, read one after the other, may contradict each other. */
  get status(): { readonly leftMs: number; readonly ended: LeaseEnd | undefined } {
    const { leftMs } = this;
    if (this.#hasGivenWay) return { leftMs, ended: 'pressure' };
    return { leftMs, ended: leftMs > 0 ? undefined : 'expired' };
  }

  giveWay(): void {
    if (!this.ended) this.#hasGivenWay = true;
  }
}

export interface LeasesOptions {
  /** Frames of the pool. */
  readonly poolPages: number;
  /** Maximum pages that a tenant may hold; undefined without a limit. */
  quotaOf(tenant: string): number | undefined;
  /** Milliseconds of a clock that never goes back. */
  now(): number;
}

interface Holding extends Pinned {
  readonly snapshot: PageSnapshot;
  readonly lease: Lease;
}

/**
 * The leases on snapshots of one model. When memory runs out, cached prefixes and pages of waiting inferlets and of
 * snapshots without a lease leave the device first, then leased pages. Only then must a running inferlet give way: no
 * lease stops an inferlet.
 */
export class Leases {
  readonly #options: LeasesOptions;
  readonly #holdings = new Map<PageSnapshot, Holding>();
  /** Number of leased snapshots that hold each page. */
  readonly #pages = new Map<Page, number>();
  #endedEarlyCount = 0;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** Pages of leased snapshots; a page in two of them counts twice. */
  get pages(): number {
    this.sweep();
    let pages = 0;
    for (const holding of this.#holdings.values()) pages += holding.pages;
    return pages;
  }

  /** Number of leases that ended before their time, since the host's start. */
  get endedEarlyCount(): number {
    return this.#endedEarlyCount;
  }

  /**
   * Pins a snapshot for `leaseMs`. Replaces the snapshot's former lease, which stays after an error.
   * @throws CallFault `invalid-argument` for a duration that no lease may have, `limit-exceeded` when the tenant may never pin that many pages,
   * `unavailable` when it may not pin that many now
   */
  grant(snapshot: PageSnapshot, leaseMs: number): Lease {
    const { tenant, pages } = snapshot;
    this.check(tenant, pages.length, leaseMs, snapshot);
    this.drop(snapshot);
    const lease = new Lease(this.#options.now() + leaseMs, this.#options.now);
    this.#holdings.set(snapshot, {
      snapshot,
      lease,
      tenant,
      pages: pages.length,
      get leftMs() {
        return lease.leftMs;
      },
    });
    for (const { page } of pages) this.#pages.set(page, (this.#pages.get(page) ?? 0) + 1);
    return lease;
  }

  /** Removes the lease on a snapshot, if there is one, and returns it. The lease itself does not note that it ended early. */
  drop(snapshot: PageSnapshot): Lease | undefined {
    const holding = this.#holdings.get(snapshot);
    if (!holding) return undefined;
    this.#holdings.delete(snapshot);
    for (const { page } of snapshot.pages) {
      const remainingLeases = (this.#pages.get(page) ?? 0) - 1;
      if (remainingLeases > 0) this.#pages.set(page, remainingLeases);
      else this.#pages.delete(page);
    }
    return holding.lease;
  }

  /** Ends the lease on a snapshot early, with the reason `pressure`. */
  giveWay(snapshot: PageSnapshot): void {
    const lease = this.drop(snapshot);
    if (!lease || lease.ended) return;
    lease.giveWay();
    this.#endedEarlyCount++;
  }

  /** Ends the lease that `leaseToEnd` chooses among those of tenants that `gives` accepts: its pages may leave the device. False without such leases. */
  giveWayOne(gives: (tenant: string) => boolean): boolean {
    this.sweep();
    const holding = leaseToEnd([...this.#holdings.values()].filter(({ tenant }) => gives(tenant)));
    if (holding) this.giveWay(holding.snapshot);
    return holding !== undefined;
  }

  isPinned(page: Page): boolean {
    return this.#pages.has(page);
  }

  isLeased(snapshot: PageSnapshot): boolean {
    return this.#holdings.has(snapshot);
  }

  /** Forgets leases whose time is over. */
  sweep(): void {
    for (const { snapshot, lease } of this.#holdings.values()) if (lease.ended) this.drop(snapshot);
  }

  /**
   * Checks a lease before it is granted. @throws CallFault as `grant`
   * @param replaced snapshot whose lease the new one replaces
   */
  check(tenant: string, wantedPages: number, leaseMs: number, replaced?: PageSnapshot): void {
    if (leaseMs < 1 || leaseMs > MAX_LEASE_MS)
      throw fault('invalid-argument', `a lease of ${leaseMs} ms; it lasts 1 to ${MAX_LEASE_MS} ms`);
    this.sweep();
    const { poolPages, quotaOf } = this.#options;
    const maxPages = Math.floor(poolPages / PINNABLE_PART);
    const quota = quotaOf(tenant);
    const maxPinned = pinShare({ maxPages, others: 0, quota });
    if (wantedPages > maxPinned)
      throw fault('limit-exceeded', `an export of ${wantedPages} pages; the tenant may pin at most ${maxPinned}`);
    let [ownPages, others] = [0, 0];
    for (const holding of this.#holdings.values()) {
      if (holding.snapshot === replaced) continue;
      if (holding.tenant === tenant) ownPages += holding.pages;
      else others += holding.pages;
    }
    const share = pinShare({ maxPages, others, quota });
    if (ownPages + wantedPages <= share) return;
    throw fault(
      'unavailable',
      `the tenant pins ${ownPages} pages and may pin ${share} now; ${wantedPages} more are too many`,
    );
  }
}
