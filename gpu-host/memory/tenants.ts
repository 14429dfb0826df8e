import type { TenantLimit } from '../protocol/calls.ts';
import { PAGE_QUOTA } from '../protocol/errors.ts';
import type { TenantPageStats } from '../protocol/host.ts';
import { fault } from './fault.ts';
import type { Page } from './pool.ts';

/**
 * The pages of one tenant: those that its inferlets, its exports and its KV files hold, on all models of this host, on the device or swapped
 * out. A page counts once, however many of these holders share it. A page that several tenants hold, because they imported it from `system/`,
 * counts for each of them. Pages that only the prefix cache or a file on disk has count for no tenant.
 */
export class TenantPages {
  readonly name: string;
  /** Infinity without a limit. */
  #maxPages = Number.POSITIVE_INFINITY;
  /** Time when the limit was read from its store. */
  #readAt = 0;
  /** Number of the tenant's open spaces, one for each of its inferlets and models. */
  members = 0;
  /** Pages of the quota that stay free for calls under way: such a call has given up pages that it must take back if it fails. */
  reservedPages = 0;
  /** For each page, the number of the tenant's spaces and snapshots that hold it. */
  readonly #holders = new Map<Page, number>();

  constructor(name: string) {
    this.name = name;
  }

  get heldPages(): number {
    return this.#holders.size;
  }

  /** Null without a limit. */
  get maxPages(): number | null {
    return Number.isFinite(this.#maxPages) ? this.#maxPages : null;
  }

  /** Number of further pages that the tenant may hold. */
  get room(): number {
    return Math.max(0, this.#maxPages - this.heldPages - this.reservedPages);
  }

  /** Sets the limit unless one that was read later is already set. */
  setLimit({ pages, readAt }: TenantLimit): void {
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
    const remaining = this.holders(page) - 1;
    if (remaining < 0) throw new Error('a tenant lets go of a page that it does not hold');
    if (remaining > 0) this.#holders.set(page, remaining);
    else this.#holders.delete(page);
  }

  /** @throws CallFault `limit-exceeded`, naming the quota, when `newPages` pages pass the limit */
  check(newPages: number): void {
    if (newPages <= this.room) return;
    throw fault(
      'limit-exceeded',
      `quota ${PAGE_QUOTA}: ${this.heldPages + this.reservedPages} pages are held by the tenant's inferlets, exports and files on this host and ${newPages} more are needed; ${this.#maxPages} is the tenant's limit`,
    );
  }
}

/** The tenants that have inferlets or pages on one host. */
export class Tenants {
  readonly #tenants = new Map<string, TenantPages>();

  /** Adds a space to the tenant of that name. Of all limits given, the one that was read last counts. */
  join(name: string, limit?: TenantLimit): TenantPages {
    const tenant = this.#tenantOf(name);
    if (limit) tenant.setLimit(limit);
    tenant.members++;
    return tenant;
  }

  /** Ignores tenants without inferlets and pages: their next inferlet brings the limit. */
  setLimit(name: string, limit: TenantLimit): void {
    this.#tenants.get(name)?.setLimit(limit);
  }

  /** Maximum pages of a tenant; undefined without a limit, or when the tenant has neither inferlets nor pages. */
  maxPages(name: string): number | undefined {
    return this.#tenants.get(name)?.maxPages ?? undefined;
  }

  /** Removes a space that held these pages from the tenant. */
  leave(tenant: TenantPages, pages: Iterable<Page>): void {
    for (const page of pages) tenant.letGo(page);
    tenant.members--;
    this.#forgetIfUnused(tenant);
  }

  /** Counts a page that a snapshot of the tenant holds. */
  hold(name: string, page: Page): void {
    this.#tenantOf(name).hold(page);
  }

  letGo(name: string, page: Page): void {
    const tenant = this.#tenantOf(name);
    tenant.letGo(page);
    this.#forgetIfUnused(tenant);
  }

  /** The `maxTenants` tenants that hold most pages, largest first. */
  stats(maxTenants: number): TenantPageStats[] {
    return [...this.#tenants.values()]
      .sort((a, b) => b.heldPages - a.heldPages)
      .slice(0, maxTenants)
      .map(({ name: tenant, heldPages: pages, maxPages }) => ({ tenant, pages, maxPages }));
  }

  #tenantOf(name: string): TenantPages {
    let tenant = this.#tenants.get(name);
    if (!tenant) {
      tenant = new TenantPages(name);
      this.#tenants.set(name, tenant);
    }
    return tenant;
  }

  /** Forgets a tenant that has neither inferlets nor pages. */
  #forgetIfUnused(tenant: TenantPages): void {
    if (tenant.members === 0 && tenant.heldPages === 0) this.#tenants.delete(tenant.name);
  }
}
