import { bitCount, largestPosition, type Page, type PagePool } from './pool.ts';
import type { Tenants } from './tenants.ts';

/** Pages frozen at one moment. The holder of a snapshot retains its pages, so that later writes copy. */
export interface PageSnapshot {
  /** Tenant that owns the pages. */
  readonly tenant: string;
  readonly pages: readonly FrozenPage[];
  /** Filled slots. */
  readonly tokens: number;
  /** One past the largest position; 0 when nothing is filled. */
  readonly nextPosition: number;
}

export interface FrozenPage {
  readonly page: Page;
  /** Bit `s` set hides slot `s`. */
  readonly masked: number;
}

/** The content of these pages now. Retains nothing. */
export function snapshotOf(tenant: string, pages: readonly FrozenPage[]): PageSnapshot {
  let tokens = 0;
  let nextPosition = 0;
  for (const { page } of pages) {
    tokens += bitCount(page.filled);
    nextPosition = Math.max(nextPosition, largestPosition(page) + 1);
  }
  return { tenant, pages, tokens, nextPosition };
}

/** The pages that snapshots hold (exports and KV files, `registry/`), counted so that memory finds pages with no other holder. */
export class FrozenPages {
  readonly #pool: PagePool;
  readonly #tenants: Tenants;
  readonly #read: (page: Page, into: Uint8Array) => void;
  readonly #held = new Map<Page, number>();

  /** @param read copies out the keys and values of a page, on the device or in swap */
  constructor(pool: PagePool, tenants: Tenants, read: (page: Page, into: Uint8Array) => void) {
    this.#pool = pool;
    this.#tenants = tenants;
    this.#read = read;
  }

  /** References by page. */
  get held(): ReadonlyMap<Page, number> {
    return this.#held;
  }

  retain(snapshot: PageSnapshot): void {
    for (const { page } of snapshot.pages) {
      this.#pool.retain(page);
      this.#hold(snapshot.tenant, page);
    }
  }

  release(snapshot: PageSnapshot): void {
    for (const { page } of snapshot.pages) {
      const left = (this.#held.get(page) ?? 0) - 1;
      if (left < 0) throw new Error('an unknown snapshot was released');
      if (left > 0) this.#held.set(page, left);
      else this.#held.delete(page);
      this.#tenants.letGo(snapshot.tenant, page);
      this.#pool.release(page);
    }
  }

  /** Copies out the keys and values of the page at `index`. @throws CallFault `internal` when swap lost them */
  readPage(snapshot: PageSnapshot, index: number, into: Uint8Array): void {
    const frozen = snapshot.pages[index];
    if (!frozen) throw new RangeError(`page ${index} of a snapshot of ${snapshot.pages.length}`);
    this.#read(frozen.page, into);
  }

  #hold(tenant: string, page: Page): void {
    this.#tenants.hold(tenant, page);
    this.#held.set(page, (this.#held.get(page) ?? 0) + 1);
  }
}
