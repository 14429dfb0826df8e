import type { TenantLimit } from '../protocol/calls.ts';
import { PAGE_QUOTA } from '../protocol/errors.ts';
import { fault } from './fault.ts';
import type { Page } from './pool.ts';

/** What one tenant holds on this host. */
export interface TenantStats {
  readonly tenant: string;
  /** Distinct pages, resident or not. */
  readonly pages: number;
  /** Null when it has no limit. */
  readonly maxPages: number | null;
}

/**
 * The pages of one tenant: those that its inferlets, its exports and its KV files hold, on all models of this host. A page counts once,
 * however many of them share it, and whether it is on the device or swapped out; one that other tenants hold as well (it came from
 * `system/`) counts for each of them. What only the prefix cache
 * holds, or only a file on disk, counts for nobody.
 */
export class TenantPages {
  readonly name: string;
  /** Infinite when it has no limit. */
  #maxPages = Number.POSITIVE_INFINITY;
  /** When that was read where limits are kept. */
  #readAt = 0;
  /** Spaces that are open. */
  members = 0;
  /** Places kept for pages that calls under way may have to take back. */
  reserved = 0;
  /** By how many spaces and snapshots each page is held. */
  readonly #holders = new Map<Page, number>();

  constructor(name: string) {
    this.name = name;
  }

  get held(): number {
    return this.#holders.size;
  }

  /** Null when it has no limit. */
  get maxPages(): number | null {
    return Number.isFinite(this.#maxPages) ? this.#maxPages : null;
  }

  /** Pages that may still be held. */
  get room(): number {
    return Math.max(0, this.#maxPages - this.held - this.reserved);
  }

  /** Takes a limit, unless one that was read later is known. */
  limit({ pages, readAt }: TenantLimit): void {
    if (readAt < this.#readAt) return;
    this.#maxPages = pages ?? Number.POSITIVE_INFINITY;
    this.#readAt = readAt;
  }

  holders(page: Page): number {
    return this.#holders.get(page) ?? 0;
  }

  hold(page: Page): void {
    this.#holders.set(page, this.holders(page) + 1);
  }

  letGo(page: Page): void {
    const left = this.holders(page) - 1;
    if (left < 0) throw new Error('a tenant lets go of a page that it does not hold');
    if (left > 0) this.#holders.set(page, left);
    else this.#holders.delete(page);
  }

  /** @throws CallFault `limit-exceeded`, naming the quota, when `more` pages pass the limit */
  check(more: number): void {
    if (more <= this.room) return;
    throw fault(
      'limit-exceeded',
      `quota ${PAGE_QUOTA}: ${this.held + this.reserved} pages are held by the tenant's inferlets, exports and files on this host and ${more} more are needed; ${this.#maxPages} is the tenant's limit`,
    );
  }
}

/** The tenants that have inferlets or pages on one host. */
export class Tenants {
  readonly #tenants = new Map<string, TenantPages>();

  /** The tenant of that name, with a space more. Of the limits that are told the one that was read last counts. */
  join(name: string, limit?: TenantLimit): TenantPages {
    const tenant = this.#of(name);
    if (limit) tenant.limit(limit);
    tenant.members++;
    return tenant;
  }

  /** Nothing is kept of the limit of one that has neither inferlets nor pages: its next inferlet tells it. */
  limit(name: string, limit: TenantLimit): void {
    this.#tenants.get(name)?.limit(limit);
  }

  /** A space that held these pages is none of the tenant's any more. */
  leave(tenant: TenantPages, pages: Iterable<Page>): void {
    for (const page of pages) tenant.letGo(page);
    tenant.members--;
    this.#settle(tenant);
  }

  /** A snapshot of the tenant's holds a page. */
  hold(name: string, page: Page): void {
    this.#of(name).hold(page);
  }

  letGo(name: string, page: Page): void {
    const tenant = this.#of(name);
    tenant.letGo(page);
    this.#settle(tenant);
  }

  /** Those that hold most first, `most` of them. */
  stats(most: number): TenantStats[] {
    return [...this.#tenants.values()]
      .sort((a, b) => b.held - a.held)
      .slice(0, most)
      .map(({ name: tenant, held: pages, maxPages }) => ({ tenant, pages, maxPages }));
  }

  #of(name: string): TenantPages {
    let tenant = this.#tenants.get(name);
    if (!tenant) {
      tenant = new TenantPages(name);
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }

  /** Nothing is kept of one that has neither inferlets nor pages. */
  #settle(tenant: TenantPages): void {
    if (tenant.members === 0 && tenant.held === 0) this.#tenants.delete(tenant.name);
  }
}
