import { chooseVictims, isNewer } from '#scheduler/policies/victims.ts';
import { Families } from './family.ts';
import { fault } from './fault.ts';
import { isCached, type Page, PagePool, type PoolCounts } from './pool.ts';
import { type PrefixStats, PrefixTree } from './prefix/tree.ts';
import { type FrameNeed, framesFreed, framesNeeded, type IdleHolders, swappable } from './pressure.ts';
import { PageRestoration } from './restoration.ts';
import { PageSpace, type SpaceMemory, type SpaceOwner } from './space.ts';
import { SpaceLimits } from './space-limits.ts';
import { FrozenPages } from './space-snapshot.ts';
import { SwapFault, type SwapStore, type SwapTicket } from './swap/store.ts';
import { Tenants } from './tenants.ts';

/** The device's store of keys and values, by frame. Every `Backend` implements it. */
export interface PageDevice {
  /** Bytes of one page as `readPage` gives them. */
  readonly pageBytes: number;
  /** Copies between physical slots, pairwise, all sources read first; keys rotated on by `shifts`. */
  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void;
  readPage(frame: number, into: Uint8Array): void;
  writePage(frame: number, from: Uint8Array): void;
  /** Allocates the host memory that the device copies pages from and to fastest. */
  allocatePinned?(bytes: number): Uint8Array | undefined;
}

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
  /** Ends an inferlet to make room, during a claim. Must call `space.releaseAll()` before it returns, and nothing else of memory. */
  terminate(space: PageSpace, cause: string): void;
  /** Pages that each tenant holds on all models of the host; by default on this model only. */
  readonly tenants?: Tenants;
  /** Runs and measures `work`, which uses the device for `space` (copies, and pages that move to or from the device). */
  readonly timed?: (space: PageSpace, work: () => void) => void;
  /** Called when a space has given pages back, once for all of them: `frames` more frames are available. */
  readonly freed?: (space: PageSpace, frames: number) => void;
}

export interface MemoryStats extends PoolCounts {
  readonly prefix: PrefixStats;
  /** Totals since the start: pages moved out and back, and inferlets ended to make room. */
  readonly swapsOut: number;
  readonly swapsIn: number;
  readonly terminations: number;
  /** Frames that waiting inferlets could let go to swap, as far as it has room; a page that several share counts for each. */
  readonly idle: number;
}

const NO_COPIES: ReadonlyMap<Page, number> = new Map();
const NO_LOOKUPS: PrefixStats = { lookups: 0, hitTokens: 0, missTokens: 0, evictions: 0 };

/**
 * All pages of one model on one device. When frames run out, memory frees them in this order: cached prefixes that no inferlet uses; pages
 * of inferlets that wait on I/O and of unmapped snapshots (moved to swap); the newest inferlets (ended; Pie, SOSP '25, section 5.3). All of
 * this happens between device steps, so no call waits for it.
 *
 * free + cached + owned = frames, always. The oldest inferlet's claims succeed unless they pass its limit or the pool, less the pages of
 * snapshots that swap has no room for.
 */
export class DeviceMemory implements SpaceMemory {
  readonly pool: PagePool;
  readonly prefixes: PrefixTree<Page> | undefined;
  /** Pages that exports and KV files hold. */
  readonly snapshots: FrozenPages;
  readonly rotates: boolean;
  readonly #device: PageDevice;
  readonly #swap: SwapStore | undefined;
  readonly #terminate: (space: PageSpace, cause: string) => void;
  readonly #timed: NonNullable<MemoryOptions['timed']>;
  readonly #freed: NonNullable<MemoryOptions['freed']>;
  readonly #tenants: Tenants;
  readonly #spaces = new Set<PageSpace>();
  readonly #families = new Families();
  /** Holds one page while it moves between the device and swap. */
  readonly #buffer: Uint8Array;
  #opened = 0;
  #swapsOut = 0;
  #swapsIn = 0;
  #terminations = 0;

  constructor(options: MemoryOptions) {
    const { pageSize, pageCount, device, swap } = options;
    this.pool = new PagePool(pageSize, pageCount, (ticket) => swap?.drop(ticket));
    this.prefixes = options.prefixCache ? new PrefixTree(pageSize) : undefined;
    this.#tenants = options.tenants ?? new Tenants();
    this.snapshots = new FrozenPages(this.pool, this.#tenants, (page, into) => this.#readPage(page, into));
    this.rotates = options.rotates;
    this.#device = device;
    this.#swap = swap;
    this.#terminate = options.terminate;
    this.#timed = options.timed ?? ((_space, work) => work());
    this.#freed = options.freed ?? (() => undefined);
    this.#buffer = device.allocatePinned?.(device.pageBytes) ?? new Uint8Array(device.pageBytes);
  }

  get spaces(): ReadonlySet<PageSpace> {
    return this.#spaces;
  }

  /** @param changed called for each distinct page that the space begins (1) or ceases (-1) to hold */
  openSpace(owner: SpaceOwner, changed?: (change: 1 | -1) => void): PageSpace {
    const limits = new SpaceLimits({
      maxPages: owner.maxPages,
      poolPages: this.pool.total,
      families: this.#families,
      tenants: this.#tenants,
      family: owner.family && this.#families.join(owner.family),
      tenant: this.#tenants.join(owner.tenant, owner.tenantPages),
      changed,
    });
    const space = new PageSpace(this, owner, this.#opened++, limits);
    this.#spaces.add(space);
    return space;
  }

  /** Gives back everything that a space holds; the caller must not use the space afterwards. */
  closeSpace(space: PageSpace): void {
    space.leaveLimits();
    space.releaseAll();
    this.#spaces.delete(space);
  }

  /**
   * Frees `frames` frames, and one more for each copy that a write through so many mappings of each of `copies` needs.
   * Never swaps out pages of the requester.
   * @throws CallFault `limit-exceeded` when they can never fit (ends no inferlet then); `terminated` when the requester must end.
   */
  claim(requester: PageSpace, frames: number, copies: ReadonlyMap<Page, number> = NO_COPIES): void {
    const need: FrameNeed = { frames, copies };
    for (;;) {
      if (this.#fits(need)) return;
      this.#evictCached(need);
      if (this.#fits(need)) return;
      const idle = this.#idleBut(requester);
      const swapFull = !this.#swapOut(requester, need, idle);
      if (this.#fits(need)) return;
      // Each turn ends an inferlet or throws, so there are no more turns than spaces.
      this.#endNewest(requester, need, swapFull ? undefined : idle);
    }
  }

  /**
   * Makes room for the pages of a snapshot that is on disk only and belongs to `tenant`. They are the requester's until the snapshot is
   * whole.
   * @throws as `claim`, `limit-exceeded` when the requester may not hold so many more (makes no room then)
   */
  restore(requester: PageSpace, tenant: string, pages: number): PageRestoration {
    requester.checkLimit(pages);
    this.claim(requester, pages);
    return new PageRestoration({
      space: requester,
      tenant,
      pages,
      snapshots: this.snapshots,
      write: ({ frame }, bytes) => this.#device.writePage(frame, bytes),
    });
  }

  copySlots(requester: PageSpace, sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    this.#timed(requester, () => this.#device.copySlots(sources, destinations, shifts));
  }

  freed(space: PageSpace, frames: number): void {
    this.#freed(space, frames);
  }

  swapIn(requester: PageSpace, page: Page, donor?: Page): void {
    const { swapped } = page;
    if (!swapped) {
      this.pool.swapIn(page, donor);
      return;
    }
    this.#timed(requester, () => {
      const held = this.#swap?.held(swapped);
      if (!held) this.#readPage(page, this.#buffer);
      this.pool.swapIn(page, donor);
      this.#device.writePage(page.frame, held ?? this.#buffer);
      this.#swap?.drop(swapped);
    });
    this.#swapsIn++;
  }

  uncache(page: Page): void {
    const node = page.prefix?.node;
    if (!page.inTree || !this.prefixes || node?.page !== page) throw new Error('a page is not in the prefix tree');
    this.#abandon(this.prefixes.remove(node));
  }

  stats(): MemoryStats {
    return {
      ...this.pool.counts(),
      prefix: this.prefixes?.stats() ?? NO_LOOKUPS,
      swapsOut: this.#swapsOut,
      swapsIn: this.#swapsIn,
      terminations: this.#terminations,
      idle: this.#idleFrames(),
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
      if (!page.inTree) throw new Error('a page of the prefix tree does not know it');
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
      if (page.frame >= 0 ? page.swapped : (page.swapped === undefined) !== (page.filled === 0))
        throw new Error('a page is in two places, or in none');
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

  #fits(need: FrameNeed): boolean {
    return framesNeeded(need, []) <= this.pool.free;
  }

  #evictCached(need: FrameNeed): void {
    const tree = this.prefixes;
    if (!tree) return;
    while (!this.#fits(need)) {
      // No claim copies leaves that are only cached, so that the need stays the same.
      const needed = framesNeeded(need, []);
      for (const page of tree.evictLeaves(isCached)) {
        this.pool.abandon(page);
        if (needed <= this.pool.free) return;
      }
      if (this.pool.cached === 0) return;
      this.#abandon(tree.evictBlocked(isCached));
    }
  }

  #abandon(pages: readonly Page[]): void {
    for (const page of pages) this.pool.abandon(page);
  }

  /** Holders whose pages may go to swap when `requester` claims. The requester's own pages stay. */
  #idleBut(requester: PageSpace): IdleHolders {
    const spaces = [...this.#spaces].filter((space) => space !== requester && space.idle);
    return { spaces: spaces.sort((a, b) => (isNewer(a, b) ? -1 : 1)), snapshots: this.snapshots.held };
  }

  #idleFrames(): number {
    const swap = this.#swap?.stats();
    if (!swap) return 0;
    const { owned, swappedOut } = this.pool.counts();
    let held = -swappedOut;
    for (const space of this.#spaces) if (space.idle) held += space.heldPages;
    return Math.max(0, Math.min(held, owned, swap.capacity - swap.memoryPages - swap.diskPages));
  }

  /** @returns true when swap took every page it was given */
  #swapOut(requester: PageSpace, need: FrameNeed, idle: IdleHolders): boolean {
    let room = this.#swap !== undefined;
    for (const page of swappable(idle)) {
      if (this.#fits(need)) break;
      let ticket: SwapTicket | undefined;
      // An empty page has nothing to keep.
      if (page.filled !== 0) {
        ticket = room ? this.#put(requester, page) : undefined;
        if (!ticket) {
          room = false;
          continue;
        }
        this.#swapsOut++;
      }
      this.pool.swapOut(page, ticket);
    }
    return room;
  }

  /** Moves a page to swap. The requester pays for the time, because it needs the frame. */
  #put(requester: PageSpace, page: Page): SwapTicket | undefined {
    let ticket: SwapTicket | undefined;
    this.#timed(requester, () => {
      ticket = this.#swap?.putFrom((into) => this.#device.readPage(page.frame, into));
    });
    return ticket;
  }

  #endNewest(requester: PageSpace, need: FrameNeed, idle: IdleHolders | undefined): void {
    const others = [...this.#spaces].filter((space) => space !== requester && space.heldPages > 0);
    const { free, total } = this.pool;
    const decision = chooseVictims(
      requester,
      others,
      (ended) => framesNeeded(need, ended) - free - framesFreed(ended, idle),
    );
    const pages = framesNeeded(need, []);
    switch (decision.kind) {
      case 'refuse':
        throw fault(
          'limit-exceeded',
          `${pages} pages more are needed; of the pool's ${total} the call's own inferlet and exports hold too many for that`,
        );
      case 'requester': {
        const cause = `memory pressure: the newest of ${others.length + 1} inferlets found no room for ${pages} pages more`;
        this.#end(requester, cause);
        throw fault('terminated', cause);
      }
      case 'terminate':
        for (const victim of decision.victims) {
          this.#end(
            victim,
            `memory pressure: the newest of ${others.length + 1} inferlets gave way to ${nameFor(victim, requester)}`,
          );
        }
    }
  }

  #end(space: PageSpace, cause: string): void {
    this.#terminations++;
    space.terminated = cause;
    this.#terminate(space, cause);
    if (space.heldPages > 0) throw new Error('an inferlet was ended and kept its pages');
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

/** Names the inferlet that `victim` gave way to. Names of other tenants' functions stay secret. */
function nameFor(victim: PageSpace, { owner }: PageSpace): string {
  if (owner.tenant !== victim.owner.tenant) return 'an earlier invocation of another tenant';
  return owner.functionName ? `an earlier invocation of ${owner.functionName}` : 'an earlier invocation';
}
