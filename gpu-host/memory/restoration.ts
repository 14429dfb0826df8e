import type { PageAccount } from './page-accounts.ts';
import { largestPosition, type Page } from './pool.ts';
import type { Restoration, StoredPage } from './registry/snapshot.ts';
import type { PageSpace } from './space.ts';
import type { FrozenPages, PageSnapshot } from './space-snapshot.ts';

export interface RestorationOptions {
  /** The inferlet for which the pages count until `end`. */
  readonly space: PageSpace;
  /** Account of the tenant that owns the snapshot. */
  readonly account: PageAccount;
  /** Number of pages. The caller has made as many frames free. */
  readonly pages: number;
  readonly snapshots: FrozenPages;
  /** Copies the keys and values of a page to its frame. */
  write(page: Page, bytes: Uint8Array): void;
}

/**
 * Pages on their way from disk. The space holds them without an address, so no call sees them before they are whole. They count against the
 * space's limits, stay on the device, and are released when the space ends.
 */
export class PageRestoration implements Restoration<PageSnapshot> {
  readonly #options: RestorationOptions;
  readonly #pages: Page[] = [];
  /** The mask of each page: a set bit `s` hides slot `s`. */
  readonly #masks: number[] = [];
  #ended = false;

  constructor(options: RestorationOptions) {
    this.#options = options;
    const { space, account, pages } = options;
    space.pins++;
    for (let i = 0; i < pages; i++) {
      const page = space.pool.take(account);
      if (!page) throw new Error('a snapshot is restored without free frames');
      space.keep(page);
      space.pool.release(page);
      this.#pages.push(page);
      this.#masks.push(0);
    }
  }

  fill(index: number, { filled, masked, positions }: StoredPage, bytes: Uint8Array): void {
    const page = this.#pages[index];
    if (!page || page.frame < 0) throw new Error(`page ${index} of a restored snapshot is not on the device`);
    this.#options.write(page, bytes);
    page.filled = filled;
    page.positions.set(positions);
    page.maxPosition = Math.max(0, largestPosition(page));
    this.#masks[index] = masked;
  }

  finish(tokens: number, nextPosition: number): PageSnapshot {
    const { account, snapshots } = this.#options;
    const pages = this.#pages.map((page, i) => ({ page, masked: this.#masks[i] as number }));
    const snapshot = { tenant: account.tenant, pages, tokens, nextPosition };
    snapshots.retain(snapshot);
    return snapshot;
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    const { space } = this.#options;
    space.pins--;
    for (const page of this.#pages.splice(0)) space.letGo(page);
  }
}
