import type { TenantLimit } from '../protocol/calls.ts';
import { PAGE_QUOTA } from '../protocol/errors.ts';
import type { TenantPageStats } from '../protocol/host.ts';
import { type Families, type Family, fault } from './fault.ts';
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

export interface SpaceLimitsOptions {
  /** Maximum distinct pages of the space. */
  readonly maxPages: number;
  /** Frames of the pool. */
  readonly poolPages: number;
  readonly families: Families;
  readonly tenants: Tenants;
  /** Family whose limit the space shares, if any. */
  readonly family: Family | undefined;
  readonly tenant: TenantPages;
  /** Called for each distinct page that the space begins (1) or ceases (-1) to hold. */
  readonly changed: ((change: 1 | -1) => void) | undefined;
}

/** Bounds the distinct pages of one space: its own limit, the pool, its family's limit and its tenant's quota. */
export class SpaceLimits {
  readonly #options: SpaceLimitsOptions;
  #family: Family | undefined;
  #tenant: TenantPages | undefined;
  #reservedPages = 0;

  constructor(options: SpaceLimitsOptions) {
    this.#options = options;
    this.#family = options.family;
    this.#tenant = options.tenant;
  }

  /** Maximum distinct pages that the space alone may hold. */
  get maxOwnPages(): number {
    return Math.min(this.#options.maxPages, this.#options.poolPages);
  }

  /** True when one page more than `heldPages` stays within every limit. */
  hasRoom(heldPages: number): boolean {
    const family = this.#family;
    if (heldPages >= this.maxOwnPages || this.#tenant?.room === 0) return false;
    return !family || family.heldPages < family.maxPages;
  }

  /** Number of the tenant's spaces and snapshots that hold the page. */
  tenantHolders(page: Page): number {
    return this.#tenant?.holders(page) ?? 0;
  }

  /** Counts a page that the space newly holds. */
  hold(page: Page): void {
    if (this.#family) this.#family.heldPages++;
    this.#tenant?.hold(page);
    this.#options.changed?.(1);
  }

  /** Counts a page that the space no longer holds. */
  letGo(page: Page): void {
    if (this.#family) this.#family.heldPages--;
    this.#tenant?.letGo(page);
    this.#options.changed?.(-1);
  }

  /** Reserves one page of the tenant's quota until `unreserve`. */
  reserve(): void {
    if (!this.#tenant) return;
    this.#tenant.reservedPages++;
    this.#reservedPages++;
  }

  unreserve(): void {
    if (!this.#tenant || this.#reservedPages === 0) return;
    this.#tenant.reservedPages--;
    this.#reservedPages--;
  }

  /** Leaves the family and the tenant before the space is closed: pages that it still holds then count for the space alone. */
  leave(references: ReadonlyMap<Page, number>): void {
    const { families, tenants } = this.#options;
    while (this.#reservedPages > 0) this.unreserve();
    if (this.#family) families.leave(this.#family, references.size);
    if (this.#tenant) tenants.leave(this.#tenant, references.keys());
    this.#family = undefined;
    this.#tenant = undefined;
  }

  /**
   * @param newToTenant pages of `newPages` that the tenant does not hold yet
   * @throws CallFault `limit-exceeded` when `heldPages` and `newPages` distinct pages together pass a limit, or the size of the pool
   */
  check(heldPages: number, newPages: number, newToTenant: number): void {
    const { maxPages, poolPages } = this.#options;
    const problem = `${heldPages} pages are held and ${newPages} more are needed`;
    if (heldPages + newPages > maxPages) {
      throw fault('limit-exceeded', `${problem}; ${maxPages} is the invocation's limit (manifest: limits.pages)`);
    }
    if (heldPages + newPages > poolPages) throw fault('limit-exceeded', `${problem}; the whole pool has ${poolPages}`);
    const family = this.#family;
    if (family && family.heldPages + newPages > family.maxPages) {
      throw fault(
        'limit-exceeded',
        `${family.heldPages} pages are held by an invocation and its children together and ${newPages} more are needed; ${family.maxPages} is the limit (limits.pages in the manifest of the first invocation)`,
      );
    }
    this.#tenant?.check(newToTenant);
  }
}
