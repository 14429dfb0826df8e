import type { Families, Family } from './family.ts';
import { fault } from './fault.ts';
import type { Page } from './pool.ts';
import type { TenantPages, Tenants } from './tenants.ts';

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
