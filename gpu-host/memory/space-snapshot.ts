import { departures } from '#scheduler/policies/leases.ts';
import type { Leases } from './leases.ts';
import { bitCount, holders, largestPosition, type Page, type PagePool } from './pool.ts';
import type { Tenants } from './tenants.ts';
import type { TransferBuffer, TransferBuffers } from './transfers.ts';

/** Pages frozen at one moment. The holder of a snapshot retains the pages, so an inferlet that writes to one of them later writes to a copy. */
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
  /** A set bit `s` hides slot `s`. */
  readonly masked: number;
}

/** A snapshot of these pages as they are now. The caller must retain it (`FrozenPages.retain`) before any page is written. */
export function snapshotOf(tenant: string, pages: readonly FrozenPage[]): PageSnapshot {
  let tokens = 0;
  let nextPosition = 0;
  for (const { page } of pages) {
    tokens += bitCount(page.filled);
    nextPosition = Math.max(nextPosition, largestPosition(page) + 1);
  }
  return { tenant, pages, tokens, nextPosition };
}

export interface FrozenPagesOptions {
  readonly pool: PagePool;
  readonly tenants: Tenants;
  readonly leases: Leases;
  /** Copies the keys and values of a page from the device or from swap. They are in `into` once `transfers` have settled. */
  read(page: Page, into: Uint8Array): void;
  readonly transfers: TransferBuffers;
  /** Milliseconds of a clock that never goes back. */
  now(): number;
}

/**
 * The snapshots of exports and KV files (`registry/`), and their references to pages: memory may swap out a page
 * without other references.
 */
export class FrozenPages {
  readonly leases: Leases;
  readonly #options: FrozenPagesOptions;
  readonly #references = new Map<Page, number>();
  /** The snapshots, least recently used first, each with the time at which the owner expects its next use; undefined without a hint. */
  readonly #nextUses = new Map<PageSnapshot, number | undefined>();

  constructor(options: FrozenPagesOptions) {
    this.#options = options;
    this.leases = options.leases;
  }

  /** References by page. */
  get held(): ReadonlyMap<Page, number> {
    return this.#references;
  }

  has(snapshot: PageSnapshot): boolean {
    return this.#nextUses.has(snapshot);
  }

  retain(snapshot: PageSnapshot): void {
    if (this.has(snapshot)) throw new Error('a snapshot is held twice');
    this.#nextUses.set(snapshot, undefined);
    for (const { page } of snapshot.pages) {
      this.#options.pool.retain(page);
      this.#hold(snapshot.tenant, page);
    }
  }

  release(snapshot: PageSnapshot): void {
    // A lease on a removed export counts as ended early, too.
    this.leases.giveWay(snapshot);
    this.#nextUses.delete(snapshot);
    for (const { page } of snapshot.pages) {
      const remaining = (this.#references.get(page) ?? 0) - 1;
      if (remaining < 0) throw new Error('an unknown snapshot was released');
      if (remaining > 0) this.#references.set(page, remaining);
      else this.#references.delete(page);
      this.#options.tenants.letGo(snapshot.tenant, page);
      this.#options.pool.release(page);
    }
  }

  /** Counts the snapshot as used now, and forgets an earlier hint about its next use. */
  used(snapshot: PageSnapshot): void {
    if (!this.#nextUses.delete(snapshot)) throw new Error('an unknown snapshot is used');
    this.#nextUses.set(snapshot, undefined);
  }

  /** Notes that the snapshot will be used next in about `nextUseMs`; 0 for no expectation. */
  expect(snapshot: PageSnapshot, nextUseMs: number): void {
    if (this.has(snapshot)) this.#nextUses.set(snapshot, nextUseMs > 0 ? this.#options.now() + nextUseMs : undefined);
  }

  /** The pages that may leave the device (`mayLeave`), in the order in which they should leave. */
  *leavingPages(): Generator<Page> {
    this.leases.sweep();
    const nowMs = this.#options.now();
    const candidates = [];
    for (const [snapshot, nextUse] of this.#nextUses) {
      if (this.leases.isLeased(snapshot)) continue;
      let pages = 0;
      for (const { page } of snapshot.pages) if (this.mayLeave(page)) pages++;
      if (pages > 0)
        candidates.push({ tenant: snapshot.tenant, pages, nextUseMs: nextUse && nextUse - nowMs, snapshot });
    }
    for (const { snapshot } of departures(candidates)) {
      // A page that two snapshots hold may have left already, with the first of them.
      for (const { page } of snapshot.pages) if (this.mayLeave(page)) yield page;
    }
  }

  /** True when the page is on the device and only snapshots without a lease hold it. */
  mayLeave(page: Page): boolean {
    return page.frame >= 0 && !this.leases.isPinned(page) && holders(page) === this.#references.get(page);
  }

  takeBuffer(bytes: number): TransferBuffer {
    return this.#options.transfers.take(bytes);
  }

  settled(): Promise<void> | undefined {
    return this.#options.transfers.settled();
  }

  /**
   * Copies the keys and values of the page at `index` to `into`, a transfer buffer. The copy is complete once `settled` resolves.
   * @throws CallFault `internal` when swap lost them
   */
  readPage(snapshot: PageSnapshot, index: number, into: Uint8Array): void {
    const frozen = snapshot.pages[index];
    if (!frozen) throw new RangeError(`page ${index} of a snapshot of ${snapshot.pages.length}`);
    this.#options.read(frozen.page, into);
  }

  #hold(tenant: string, page: Page): void {
    this.#options.tenants.hold(tenant, page);
    this.#references.set(page, (this.#references.get(page) ?? 0) + 1);
  }
}
