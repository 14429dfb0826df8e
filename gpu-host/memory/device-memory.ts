import type { PrefixStats } from '../protocol/host.ts';
import { Families, fault } from './fault.ts';
import { Leases } from './leases.ts';
import type { StoredPage } from './page-records.ts';
import {
  isCached,
  largestPosition,
  type Page,
  type PageAccount,
  PageAccounts,
  PagePool,
  type PageSnapshot,
  type PoolCounts,
} from './pool.ts';
import { PrefixTree } from './prefix/tree.ts';
import type { Restoration } from './registry/stored.ts';
import { Relief, type ReliefStats } from './relief.ts';
import { type Contender, Contenders, PageSpace, type SpaceMemory, type SpaceOwner } from './space.ts';
import { FrozenPages } from './space-snapshot.ts';
import { SwapFault, type SwapStore, type SwapTicket } from './swap/store.ts';
import { SpaceLimits, Tenants } from './tenants.ts';
import { type PageDevice, TransferBuffers } from './transfers.ts';

export interface MemoryOptions {
  /** Slots of a page. */
  readonly pageSize: number;
  /** Frames of the pool. */
  readonly pageCount: number;
  readonly device: PageDevice;
  /** True to keep finished prefixes, so that later calls find them. */
  readonly prefixCache: boolean;
  /** Store for pages of waiting inferlets and of unmapped snapshots. */
  readonly swap: SwapStore | undefined;
  /** True when the model's keys can be rotated to other positions. */
  readonly rotates: boolean;
  /** Ends an inferlet to make room, during a claim. Must call `space.releaseAll()` before it returns, and no other method of `DeviceMemory`. */
  terminate(space: PageSpace, cause: string): void;
  /**
   * Holds the calls of a family that gives way, during a claim: none of them takes part in a step until the family returns (`Relief.next`).
   * Without this callback, or without swap, memory ends inferlets instead.
   */
  readonly preempt?: ((family: Contender) => void) | undefined;
  /**
   * Begins to bring pages of a space back from swap on disk, with `bringFromDisk`. Without this callback, memory reads such a page when a call
   * needs the page, and the host's thread waits for the disk.
   */
  readonly fetch?: (space: PageSpace, pages: readonly Page[]) => void;
  /** Pages that each tenant holds on all models of the host; by default on this model only. */
  readonly tenants?: Tenants;
  /** Runs and measures `work`, which uses the device for `space` (copies, and pages that move to or from the device). */
  readonly timed?: (space: PageSpace, work: () => void) => void;
  /** Called when a space has given pages back, once for all of them: `frames` more frames are available. */
  readonly freed?: (space: PageSpace, frames: number) => void;
  /** Milliseconds of a clock that never goes back, for leases and expected uses of exports; by default the process's. */
  readonly now?: () => number;
}

export interface MemoryStats extends PoolCounts, ReliefStats {
  readonly prefix: PrefixStats;
  /** Pages moved back from swap since the start. */
  readonly swapsIn: number;
  /** Pages of leased exports now. */
  readonly pinnedPages: number;
  /** Leases that ended before their time since the start, because memory was needed or the export was removed. */
  readonly leasesEnded: number;
}

const NO_COPIES: ReadonlyMap<Page, number> = new Map();
const NO_LOOKUPS: PrefixStats = { lookups: 0, hitTokens: 0, missTokens: 0, evictions: 0 };

/**
 * All pages of one model on one device. A frame is the place of one page on the device. When frames run out, `Relief` frees some between
 * batches. During a batch, memory frees only frames of cached prefixes (`takeSpare`).
 *
 * free + cached + owned = frames, always. Memory refuses a claim of the oldest inferlet only when the inferlet passes a limit, or when snapshots
 * hold the frames and swap has no room for their pages.
 */
export class DeviceMemory implements SpaceMemory {
  readonly pool: PagePool;
  readonly prefixes: PrefixTree<Page, PageAccount> | undefined;
  /** Pages that exports and KV files hold. */
  readonly snapshots: FrozenPages;
  readonly rotates: boolean;
  /** Makes room, and brings preempted inferlets back. */
  readonly relief: Relief;
  readonly #device: PageDevice;
  readonly #swap: SwapStore | undefined;
  readonly #runTimed: NonNullable<MemoryOptions['timed']>;
  readonly #onFreed: NonNullable<MemoryOptions['freed']>;
  readonly #fetch: MemoryOptions['fetch'];
  readonly #transfers: TransferBuffers;
  readonly #tenants: Tenants;
  readonly #spaces = new Set<PageSpace>();
  readonly #families = new Families();
  readonly #contenders = new Contenders();
  readonly #accounts = new PageAccounts();
  readonly #now: () => number;
  /** Holds one page on its way from swap to the device. */
  readonly #buffer: Uint8Array;
  #openedSpaces = 0;
  #swapsIn = 0;

  constructor(options: MemoryOptions) {
    const { pageSize, pageCount, device, swap } = options;
    this.pool = new PagePool(pageSize, pageCount, (ticket) => swap?.drop(ticket));
    this.prefixes = options.prefixCache ? new PrefixTree(pageSize, ({ account }) => account) : undefined;
    this.#tenants = options.tenants ?? new Tenants();
    const now = options.now ?? (() => performance.now());
    this.#now = now;
    this.#transfers = new TransferBuffers(device);
    this.snapshots = new FrozenPages({
      pool: this.pool,
      tenants: this.#tenants,
      leases: new Leases({ poolPages: pageCount, quotaOf: (tenant) => this.#tenants.maxPages(tenant), now }),
      read: (page, into) => this.#queueRead(page, into),
      transfers: this.#transfers,
      now,
    });
    this.rotates = options.rotates;
    this.#device = device;
    this.#swap = swap;
    this.#runTimed = options.timed ?? ((_space, work) => work());
    this.#onFreed = options.freed ?? (() => undefined);
    this.#fetch = options.fetch;
    this.#buffer = device.allocatePinned?.(device.pageBytes) ?? new Uint8Array(device.pageBytes);
    this.relief = new Relief({
      pool: this.pool,
      prefixes: this.prefixes,
      accounts: this.#accounts,
      snapshots: this.snapshots,
      spaces: this.#spaces,
      contenders: this.#contenders,
      swap,
      put: (requester, page) => this.#put(requester, page),
      terminate: options.terminate,
      preempt: options.preempt,
      now,
    });
  }

  /** Bytes of the keys and values of one page. */
  get pageBytes(): number {
    return this.#device.pageBytes;
  }

  get spaces(): ReadonlySet<PageSpace> {
    return this.#spaces;
  }

  /** Call after each step of the device. */
  stepped(): void {
    this.#contenders.stepped();
  }

  /** @param onChange called for each distinct page that the space begins (1) or ceases (-1) to hold */
  openSpace(owner: SpaceOwner, onChange?: (change: 1 | -1) => void): PageSpace {
    const limits = new SpaceLimits({
      maxPages: owner.maxPages,
      poolPages: this.pool.total,
      families: this.#families,
      tenants: this.#tenants,
      family: owner.family && this.#families.join(owner.family),
      tenant: this.#tenants.join(owner.tenant, owner.tenantPages),
      changed: onChange,
    });
    const order = this.#openedSpaces++;
    const account = this.#accounts.of(owner.tenant);
    this.#accounts.join(account);
    const contender = this.#contenders.of(account, owner.arrival, order, owner.family);
    const space = new PageSpace(this, owner, order, limits, contender);
    this.#contenders.add(space);
    this.#spaces.add(space);
    return space;
  }

  /** Gives back everything that a space holds; the caller must not use the space afterwards. */
  closeSpace(space: PageSpace): void {
    space.leaveLimits();
    space.releaseAll();
    this.#contenders.remove(space);
    this.#spaces.delete(space);
    this.#accounts.leave(space.account, this.#now());
    this.relief.noteChange();
  }

  /**
   * Makes `frames` frames free, and as many more as the call needs for copies of shared pages that it writes. `copies` has each written page with
   * the number of mappings that write it. Never swaps out pages of the requester.
   * @throws CallHeld when the call must wait until other inferlets give pages back; CallFault `limit-exceeded` when so many frames can never
   * be free (ends no inferlet then), `terminated` when the requester must end.
   */
  claim(requester: PageSpace, frames: number, copies: ReadonlyMap<Page, number> = NO_COPIES): void {
    this.relief.claim(requester, { frames, copies });
  }

  /**
   * Makes room for the pages of a snapshot that is on disk only and belongs to `tenant`. Until the snapshot is whole, the pages count for the
   * requester.
   * @throws as `claim`; when the requester may not hold that many more pages, throws `limit-exceeded` and makes no room
   */
  restore(requester: PageSpace, tenant: string, pages: number): PageRestoration {
    requester.checkLimit(pages);
    this.claim(requester, pages);
    return new PageRestoration({
      space: requester,
      account: this.#accounts.of(tenant),
      pages,
      snapshots: this.snapshots,
      write: (page, bytes) => this.#write(page, bytes),
    });
  }

  copySlots(requester: PageSpace, sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    this.#runTimed(requester, () => this.#device.copySlots(sources, destinations, shifts));
  }

  freed(space: PageSpace, frames: number): void {
    this.#onFreed(space, frames);
  }

  swapIn(requester: PageSpace, page: Page, donor?: Page): void {
    const { swapped } = page;
    if (!swapped) {
      this.pool.swapIn(page, donor);
      return;
    }
    this.#runTimed(requester, () => {
      const swappedBytes = this.#swap?.pageInMemory(swapped);
      if (!swappedBytes) this.#readPage(page, this.#buffer);
      this.pool.swapIn(page, donor);
      if (swappedBytes) this.#write(page, swappedBytes);
      else this.#device.writePage(page.frame, this.#buffer);
      this.#swap?.drop(swapped);
    });
    this.#swapsIn++;
  }

  beginFetch(requester: PageSpace, pages: Iterable<Page>): boolean {
    if (requester.isFetching) return true;
    if (!this.#fetch || requester.readsItself) return false;
    const onDisk = [...pages].filter(({ swapped }) => swapped?.place === 'disk');
    if (onDisk.length === 0) return false;
    requester.isFetching = true;
    this.#fetch(requester, onDisk);
    return true;
  }

  /**
   * Brings pages back from swap on disk, a buffer of pages at a time: other threads read the pages from disk, and `move` takes them to the device.
   * All pages of the space stay on the device until the last one has come. A page that the disk does not return stays in swap: the call that needs
   * it reads the disk again.
   * @param between runs `move` between two device steps, unless the space has ended
   * @throws as `claim`; pages that have come are kept
   */
  async bringFromDisk(
    space: PageSpace,
    pages: readonly Page[],
    between: (move: () => void) => Promise<void>,
  ): Promise<void> {
    const { pageBytes } = this.#device;
    const count = this.#transfers.countOf(pageBytes);
    space.pins++;
    try {
      for (let first = 0; first < pages.length; first += count) {
        const pageBatch = pages.slice(first, first + count);
        const buffer = this.#transfers.take(pageBatch.length * pageBytes);
        const bytesOf = (i: number) => buffer.bytes.subarray(i * pageBytes, (i + 1) * pageBytes);
        try {
          const fetched = await Promise.all(pageBatch.map((page, i) => this.#fetchPage(page, bytesOf(i))));
          await between(() => {
            for (const [i, page] of pageBatch.entries()) this.#takeFetched(space, page, fetched[i], bytesOf(i));
          });
        } finally {
          buffer.release();
        }
      }
    } finally {
      space.pins--;
    }
  }

  /** @returns the ticket of a page that was read; undefined for one that was not on disk, or that the disk did not return */
  async #fetchPage({ swapped }: Page, into: Uint8Array): Promise<SwapTicket | undefined> {
    if (!this.#swap || swapped?.place !== 'disk') return undefined;
    return (await this.#swap.fetch(swapped, into)) ? swapped : undefined;
  }

  #takeFetched(space: PageSpace, page: Page, ticket: SwapTicket | undefined, bytes: Uint8Array): void {
    // While the disk read, another space may have brought the page back, or this space may have let it go. A claim for a page that this space does
    // not hold could end the last inferlet that holds the page.
    if (!ticket || page.swapped !== ticket || !space.held.has(page)) return;
    this.claim(space, 1);
    this.#runTimed(space, () => {
      this.pool.swapIn(page);
      this.#write(page, bytes);
      this.#swap?.drop(ticket);
    });
    this.#swapsIn++;
  }

  /** Copies to a page's frame. The device may read `bytes` until queued copies have ended. */
  #write({ frame }: Page, bytes: Uint8Array): void {
    if (this.#device.queueWritePage) this.#device.queueWritePage(frame, bytes);
    else this.#device.writePage(frame, bytes);
  }

  /**
   * Takes an empty page for an inferlet's next allocation, in a frame that is free or holds only a cached prefix, so that no inferlet gives way.
   * Undefined when there is no such frame, or while calls wait for memory. The caller hands the page to `PageSpace.allocate` or releases
   * it.
   */
  takeSpare({ account }: PageSpace): Page | undefined {
    if (this.pool.available === 0 || this.relief.holdsCalls) return undefined;
    return this.relief.freeOne(account) ? this.pool.take(account) : undefined;
  }

  /** Frames that are free, or that hold cached prefixes which a claim of the tenant may evict. */
  availableTo(tenant: string): number {
    return this.relief.availableTo(this.#accounts.of(tenant));
  }

  /**
   * Brings a page back to the device, into a frame that is free or holds only a cached prefix, so that no inferlet gives way. False when there is
   * no such frame, or while calls wait for memory. @throws CallFault `internal` when swap lost the page
   */
  bringBack(requester: PageSpace, page: Page): boolean {
    if (page.frame >= 0) return true;
    if (this.relief.holdsCalls || !this.relief.freeOne(page.account)) return false;
    this.swapIn(requester, page);
    return true;
  }

  /** Moves a page to swap if only snapshots without a lease hold it. False when the page stays on the device. */
  moveOut(requester: PageSpace, page: Page): boolean {
    if (page.frame < 0) return true;
    return this.snapshots.mayLeave(page) && this.relief.moveOut(requester, page);
  }

  uncache(page: Page): void {
    const node = page.prefix?.node;
    if (!page.inTree || !this.prefixes || node?.page !== page) throw new Error('a page is not in the prefix tree');
    for (const each of this.prefixes.remove(node)) this.pool.abandon(each);
  }

  stats(): MemoryStats {
    return {
      ...this.pool.counts(),
      prefix: this.prefixes?.stats() ?? NO_LOOKUPS,
      ...this.relief.stats(),
      swapsIn: this.#swapsIn,
      pinnedPages: this.snapshots.leases.pages,
      leasesEnded: this.snapshots.leases.endedEarlyCount,
    };
  }

  /** Throws when a page was lost. Cheap enough to run whenever the model is idle. */
  check(): void {
    this.pool.check();
  }

  /** Throws when counts or references disagree with the holders; asks every holder. For tests. */
  audit(): void {
    this.check();
    this.prefixes?.check();
    const references = new Map<Page, number>(this.snapshots.held);
    for (const { held } of this.#spaces) {
      for (const [page, count] of held) references.set(page, (references.get(page) ?? 0) + count);
    }
    for (const page of this.prefixes?.pages() ?? []) {
      if (!page.inTree) throw new Error('a page of the prefix tree is not marked as in the tree');
      references.set(page, (references.get(page) ?? 0) + 1);
    }
    const frames = new Set<number>();
    let [cached, swappedOut, tickets] = [0, 0, 0];
    for (const [page, count] of references) {
      if (page.references !== count) throw new Error(`a page has ${count} holders and counts ${page.references}`);
      if (page.frame < 0) swappedOut++;
      else if (frames.has(page.frame)) throw new Error(`frame ${page.frame} belongs to two pages`);
      else frames.add(page.frame);
      if (page.swapped) tickets++;
      // Exactly the pages that are off the device and have filled slots have a ticket.
      const needsTicket = page.frame < 0 && page.filled !== 0;
      if ((page.swapped !== undefined) !== needsTicket) throw new Error('a page is in two places, or in none');
      if (page.frame >= 0 && isCached(page)) cached++;
    }
    const { memoryPages = 0, diskPages = 0 } = this.#swap?.stats() ?? {};
    if (memoryPages + diskPages !== tickets)
      throw new Error(`${memoryPages + diskPages} pages are in swap, ${tickets} are known to be`);
    const counts = this.pool.counts();
    if (counts.cached !== cached || counts.swappedOut !== swappedOut || counts.total - counts.free !== frames.size) {
      throw new Error(
        `${JSON.stringify(counts)}, but ${cached} cached, ${swappedOut} swapped out, ${frames.size} in frames`,
      );
    }
  }

  /** Copies a page to swap; undefined when swap refuses it. The requester pays for the time, because it needs the frame. */
  #put(requester: PageSpace, page: Page): SwapTicket | undefined {
    let ticket: SwapTicket | undefined;
    this.#runTimed(requester, () => {
      ticket = this.#swap?.putFrom((into, stays) => {
        if (stays && this.#device.queueReadPage) this.#device.queueReadPage(page.frame, into);
        else this.#device.readPage(page.frame, into);
      });
    });
    return ticket;
  }

  /** Copies a page to `into`. The copy is complete once queued copies have ended. @throws CallFault `internal` when swap lost the page */
  #queueRead(page: Page, into: Uint8Array): void {
    if (page.frame >= 0 && this.#device.queueReadPage) this.#device.queueReadPage(page.frame, into);
    else this.#readPage(page, into);
  }

  /** @throws CallFault `internal` when swap lost the page */
  #readPage(page: Page, into: Uint8Array): void {
    if (page.frame >= 0) {
      this.#device.readPage(page.frame, into);
      return;
    }
    try {
      if (page.swapped) this.#swap?.read(page.swapped, into);
      else into.fill(0);
    } catch (error) {
      if (error instanceof SwapFault) throw fault('internal', error.message);
      throw error;
    }
  }
}

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
