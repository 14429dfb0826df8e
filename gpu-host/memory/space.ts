import type { TenantLimit } from '../protocol/calls.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { MAX_PAGE_ADDRESSES, TOO_MANY_ADDRESSES } from '../protocol/page-budget.ts';
import type { Contender } from './contender.ts';
import {
  CallFault,
  CallHeld,
  dependencyFault,
  Failures,
  type Families,
  type Family,
  type FamilyName,
  fault,
} from './fault.ts';
import { KnownText } from './known-text.ts';
import { bitCount, holders, type Page, type PageAccount, type PagePool } from './pool.ts';
import type { PrefixTree } from './prefix/tree.ts';
import { beginPrefix, type PrefixPeek, type PrefixRequest, type PrefixRun, peekPrefix } from './space-prefix.ts';
import {
  copyPage,
  copySlots,
  type FrozenPage,
  type PageSnapshot,
  type SlotCopy,
  snapshotOf,
} from './space-snapshot.ts';
import type { TenantPages, Tenants } from './tenants.ts';

/** Owner of a space. */
export interface SpaceOwner {
  readonly id: string;
  readonly tenant: string;
  /** Place in the scheduler's order; smaller is older. Children have the place of their root. */
  readonly arrival: number;
  /** Function that the inferlet runs. When memory ends an inferlet of the same tenant to make room for this one, the error names this function. */
  readonly functionName?: string | undefined;
  /** Maximum distinct pages, on the device or swapped out. */
  readonly maxPages: number;
  /** Maximum pages that the tenant may hold on this host. */
  readonly tenantPages?: TenantLimit | undefined;
  /** Family whose limit the space shares. */
  readonly family?: FamilyName | undefined;
}

/** The page behind an address. */
export interface Mapping {
  readonly address: number;
  page: Page;
  /** A set bit `s` hides slot `s` from calls through this address. */
  masked: number;
  /** True until the address is given back. A `KnownText` may keep this object longer, and checks this flag. */
  isMapped: boolean;
  /** Findings of the last call about the text that begins with this page; undefined while a call uses them. */
  text: KnownText | undefined;
}

/** The pages that a call reads, looked up once: first those of the text that an earlier call has looked up (`text`), then the `rest`. */
export interface ContextPages {
  readonly text: KnownText;
  readonly rest: readonly Mapping[];
}

/** The memory of one model, as its spaces see it. */
export interface SpaceMemory {
  readonly pool: PagePool;
  readonly prefixes: PrefixTree<Page> | undefined;
  /** True when keys can be rotated to other positions. */
  readonly rotates: boolean;
  /**
   * Makes `frames` frames free, and more for copies of shared pages that the call writes. `copies` gives the number of mappings that write each page.
   * @throws CallFault, or CallHeld when the call has to wait
   */
  claim(requester: PageSpace, frames: number, copies?: ReadonlyMap<Page, number>): void;
  /** Brings a page back, to a free frame or to that of `donor`, a page about to be released. @throws CallFault `internal` when swap lost it */
  swapIn(requester: PageSpace, page: Page, donor?: Page): void;
  /** Starts to bring back those of `pages` that are on disk. @returns true while pages of the space come from disk: the call must wait */
  beginFetch(requester: PageSpace, pages: Iterable<Page>): boolean;
  copySlots(requester: PageSpace, sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void;
  /** Reports that `space` has given pages back and `frames` more frames are available. */
  freed(space: PageSpace, frames: number): void;
  /** Takes a page and its descendants out of the prefix tree. */
  uncache(page: Page): void;
}

/**
 * The pages of one inferlet on one model, by address. Every access checks that the inferlet holds the address. Pages are shared copy-on-write: a
 * write through an address whose page has other holders first moves the address to a copy of the page. A method that throws has changed nothing,
 * except that pages may have been swapped in, and that `free` has freed the addresses that are held.
 *
 * A method that needs a frame may take frames from other inferlets (`DeviceMemory.claim`). The method throws CallHeld when its call has to wait
 * until other inferlets give frames back, or until pages have come from disk. When waiting does not help, memory ends this inferlet, and the
 * method throws CallFault `terminated`, as every method does from then on.
 */
export class PageSpace {
  readonly owner: SpaceOwner;
  /** Breaks ties between equal arrivals: the space opened later is newer. */
  readonly order: number;
  readonly memory: SpaceMemory;
  readonly pool: PagePool;
  /** Causes of failed calls, by the address that the call should have allocated or filled. */
  readonly failures = new Failures();
  /** True while the inferlet waits on I/O. */
  waiting = false;
  /** True while calls of the inferlet are pending. */
  busy = false;
  /** Number of steps and of restores from disk that use the pages' frames now. While it is above 0, the pages stay on the device. */
  pins = 0;
  /** True while pages come from swap on disk: calls that need pages are held. */
  isFetching = false;
  /** True when a fetch has left pages on disk: the next call that needs them reads them itself, and blocks this thread meanwhile. */
  readsItself = false;
  /** The inferlet's family, as preemption sees it. */
  readonly contender: Contender;
  /** Set when memory ended the inferlet to make room. */
  terminationCause: string | undefined;
  readonly #mappings = new Map<number, Mapping>();
  /** Number of holds on each page: one for each address, and one while `keep` holds the page. The limits bound the number of pages. */
  readonly #holdCounts = new Map<Page, number>();
  /** Pages that `keep` holds without an address: a call under way replaced them and needs them if it fails, or they are still coming from disk. */
  readonly #keptPages = new Set<Page>();
  readonly limits: SpaceLimits;

  /** Made by `DeviceMemory.openSpace`. */
  constructor(memory: SpaceMemory, owner: SpaceOwner, order: number, limits: SpaceLimits, contender: Contender) {
    this.contender = contender;
    this.limits = limits;
    this.memory = memory;
    this.pool = memory.pool;
    this.owner = owner;
    this.order = order;
  }

  get arrival(): number {
    return this.owner.arrival;
  }

  /** The tenant's account, for which the pages count that the inferlet makes. */
  get account(): PageAccount {
    return this.contender.account;
  }

  /** Number of distinct pages held, on the device or swapped out. */
  get heldPages(): number {
    return this.#holdCounts.size;
  }

  /** Number of holds on each page: its addresses, and one while `keep` holds it. */
  get held(): ReadonlyMap<Page, number> {
    return this.#holdCounts;
  }

  /** True when one page more stays within every limit. */
  get hasRoom(): boolean {
    return this.limits.hasRoom(this.#holdCounts.size);
  }

  /** True when the tenant holds the page, through this space or anything else. */
  tenantHolds(page: Page): boolean {
    return this.#holdCounts.has(page) || this.limits.tenantHolders(page) > 0;
  }

  /** Stops counting the pages for the family and the tenant. */
  leaveLimits(): void {
    this.limits.leave(this.#holdCounts);
  }

  /** True while the inferlet waits on I/O and none of its calls is pending. */
  get idle(): boolean {
    return this.waiting && !this.busy;
  }

  /** True when the pages may be swapped out. */
  get movable(): boolean {
    return this.pins === 0 && (this.idle || this.contender.isAway);
  }

  /**
   * Allocates `count` pages at addresses from `first` on, or only `spare`, a page that `DeviceMemory.takeSpare` gave.
   * @throws CallFault `limit-exceeded`, `invalid-argument` when an address is in use, `terminated`, or CallHeld; allocates nothing then
   */
  allocate(first: number, count: number, spare?: Page): void {
    this.#checkNew(first, count);
    this.checkLimit(count);
    if (spare) {
      this.#map(first, spare, 0);
      return;
    }
    this.memory.claim(this, count);
    for (let i = 0; i < count; i++) this.#map(first + i, this.pool.take(this.account) as Page, 0);
  }

  /** Marks the content of these addresses as missing, because a call of the queue `source` failed with `cause`. Ignores addresses not held. */
  fail(addresses: Uint32Array, cause: HandlerError, source: object): void {
    for (const address of addresses) if (this.#mappings.has(address)) this.failures.mark(address, cause, source);
  }

  /**
   * Gives addresses back. An address whose allocation failed has no page, and giving it back is no error.
   * @throws CallFault `not-owned` for an unknown address, after freeing the others; `invalid-argument` for a repeated one, and frees none then
   */
  free(addresses: Uint32Array): void {
    const distinct = new Set(addresses);
    if (distinct.size !== addresses.length) throw fault('invalid-argument', 'a page is named twice in one free');
    const unknownAddress = addresses.find((address) => !this.#mappings.has(address) && !this.failures.unmade(address));
    this.#giveBack(() => {
      for (const address of distinct) if (this.#mappings.has(address)) this.#unmap(address);
    });
    if (unknownAddress !== undefined) throw this.#missingFault(unknownAddress);
  }

  releaseAll(): void {
    this.#giveBack(() => {
      for (const address of [...this.#mappings.keys()]) this.#unmap(address);
      for (const page of [...this.#keptPages]) this.letGo(page);
    });
    this.failures.clear();
  }

  /** Maps the pages of `sources` at `first`, `first + 1`, …, with the sources' masks. */
  share(sources: Uint32Array, first: number): void {
    this.#checkNew(first, sources.length);
    const mappings = Array.from(sources, (source) => this.#lookup(source));
    for (const [i, { page, masked }] of mappings.entries()) {
      this.pool.retain(page);
      this.#map(first + i, page, masked);
    }
  }

  mask(address: number, slots: number): void {
    const outside = slots & ~this.pool.fullBits;
    if (outside !== 0)
      throw fault('invalid-argument', `the mask ${slots >>> 0} names slots past the page's ${this.pool.pageSize}`);
    this.#lookup(address).masked = slots >>> 0;
  }

  /**
   * The mapping of `address`, on the device: a swapped-out page is brought back.
   * @throws CallFault `not-owned`, `dependency-failed` when a failed call should have filled it, or what `DeviceMemory.claim` throws.
   */
  mapping(address: number): Mapping {
    const mapping = this.#lookup(address);
    if (mapping.page.frame < 0) this.#bringIn(new Set([mapping.page]));
    return mapping;
  }

  /** Brings swapped-out pages in, with one claim. @throws CallFault what `DeviceMemory.claim` throws */
  makeResident(mappings: readonly Mapping[]): void {
    let absentPages: Set<Page> | undefined;
    for (const { page } of mappings) {
      if (page.frame < 0) {
        absentPages ??= new Set();
        absentPages.add(page);
      }
    }
    if (absentPages) this.#bringIn(absentPages);
  }

  /**
   * The first `count` empty slots of `addresses`, in order, on pages that this inferlet may write: shared ones are copied first.
   * @throws CallFault `context-overflow` when there are fewer, `invalid-argument` when an address is named twice, or what a copy throws.
   */
  emptySlots(addresses: Uint32Array, count: number): EmptySlot[] {
    const rooms = this.roomIn(addresses, count);
    this.makeWritable(rooms);
    return slotsIn(this.pool, rooms, count);
  }

  /** The mappings whose pages have the first `count` empty slots. Brings in or copies none. @throws as `emptySlots` */
  roomIn(addresses: Uint32Array, count: number): Mapping[] {
    return roomIn(this, addresses, count);
  }

  /** Copies slots with their flags, and rotates the keys by `shift`; source and destination may be the same page. */
  copySlots(request: SlotCopy): void {
    copySlots(this, request);
  }

  /** Freezes the content of these addresses. The caller retains the snapshot to keep it (`FrozenPages.retain`). */
  snapshot(addresses: Uint32Array): PageSnapshot {
    if (new Set(addresses).size !== addresses.length)
      throw fault('invalid-argument', 'a page is named twice in one snapshot');
    return snapshotOf(
      this.owner.tenant,
      Array.from(addresses, (address): FrozenPage => {
        const { page, masked } = this.#lookup(address);
        return { page, masked };
      }),
    );
  }

  /** Maps the pages of a snapshot at `first`, `first + 1`, …, with its masks. @throws CallFault `limit-exceeded` */
  importSnapshot(first: number, snapshot: PageSnapshot): void {
    this.#checkNew(first, snapshot.pages.length);
    const newPages = new Set<Page>();
    let newToTenant = 0;
    for (const { page } of snapshot.pages) {
      if (this.#holdCounts.has(page) || newPages.has(page)) continue;
      newPages.add(page);
      if (!this.tenantHolds(page)) newToTenant++;
    }
    this.checkLimit(newPages.size, newToTenant);
    for (const [i, { page, masked }] of snapshot.pages.entries()) {
      this.pool.retain(page);
      this.#map(first + i, page, masked);
    }
  }

  /** Begins a call's use of the prefix tree; undefined for a call that can neither take from the tree nor give to it. */
  beginPrefix(request: PrefixRequest, pages = this.takePages(request.inPages, request.adapter)): PrefixRun | undefined {
    const tree = this.memory.prefixes;
    return tree && beginPrefix(this, tree, request, pages);
  }

  /** Finds the inputs of a call that the prefix tree has now; undefined without a tree. Changes nothing and does not count as a lookup. */
  peekPrefix(request: PrefixRequest): PrefixPeek | undefined {
    const tree = this.memory.prefixes;
    return tree && peekPrefix(this, tree, request);
  }

  /** The mapping of an address, with its page on the device or swapped out. @throws CallFault `not-owned` or `dependency-failed` */
  peek(address: number): Mapping {
    return this.#lookup(address);
  }

  /** The page behind an address; undefined when it is not held, or a failed call should have filled it. */
  pageAt(address: number): Page | undefined {
    return this.failures.of(address) ? undefined : this.#mappings.get(address)?.page;
  }

  /** As `peek`, for all addresses from index `first` on. */
  peekAll(addresses: Uint32Array, first = 0): Mapping[] {
    const mappings: Mapping[] = [];
    for (let i = first; i < addresses.length; i++) mappings.push(this.#lookup(addresses[i] as number));
    return mappings;
  }

  /**
   * The mappings of a call's addresses, with the `KnownText` that an earlier call left for a text that begins at the
   * first of them. The call owns the text until it gives the text back with `keepText`; unless it does, the next call
   * looks up all pages anew. @throws CallFault as `peek`
   */
  takePages(addresses: Uint32Array, adapter: string | undefined): ContextPages {
    const text = this.#takeText(addresses) ?? new KnownText(this.pool);
    text.check(addresses, adapter);
    return { text, rest: this.peekAll(addresses, text.mappings.length) };
  }

  /** Keeps a known text for the next call over these pages. */
  keepText(text: KnownText): void {
    const [first] = text.mappings;
    if (first) first.text = text;
  }

  /** Moves an address to another page, which must have a holder. */
  remap(mapping: Mapping, page: Page): void {
    this.pool.retain(page);
    this.#move(mapping, page);
  }

  /** Holds a page until `letGo` or `releaseAll`. */
  keep(page: Page): void {
    this.pool.retain(page);
    this.#keptPages.add(page);
    this.#hold(page);
  }

  letGo(page: Page): void {
    if (this.#keptPages.delete(page)) this.#unhold(page);
  }

  /** Brings pages in, and moves each mapping of a shared page to a copy. Changes no mapping when it throws. */
  makeWritable(mappings: readonly Mapping[]): void {
    this.makeResident(mappings);
    if (mappings.some(({ page }) => page.references > 1)) copyShared(this, mappings);
  }

  /**
   * @param newToTenant pages of `newPages` that the tenant does not hold yet
   * @throws CallFault `limit-exceeded` when `newPages` more pages pass the limit of the inferlet, its family, its tenant or the pool
   */
  checkLimit(newPages: number, newToTenant: number = newPages): void {
    this.limits.check(this.#holdCounts.size, newPages, newToTenant);
  }

  #giveBack(release: () => void): void {
    const framesBefore = this.pool.available;
    release();
    const frames = this.pool.available - framesBefore;
    if (frames > 0) this.memory.freed(this, frames);
  }

  #bringIn(pages: ReadonlySet<Page>): void {
    // Claim frames first, so that only a call that has room makes the disk read.
    if (!this.isFetching) this.memory.claim(this, pages.size);
    if (this.memory.beginFetch(this, pages)) throw new CallHeld('the call waits for pages from disk');
    for (const page of pages) this.memory.swapIn(this, page);
    this.readsItself = false;
  }

  #takeText([first]: Uint32Array): KnownText | undefined {
    // A call does not look up known pages again, so it would miss a failure of one of them.
    const mapping = first === undefined || this.failures.hasAny ? undefined : this.#mappings.get(first);
    const text = mapping?.text;
    if (mapping) mapping.text = undefined;
    return text;
  }

  #checkNew(first: number, count: number): void {
    if (this.terminationCause !== undefined) throw fault('terminated', this.terminationCause);
    if (first + count > 0x1_0000_0000) throw fault('invalid-argument', 'page addresses past 2^32');
    if (this.#mappings.size + count > MAX_PAGE_ADDRESSES) throw new CallFault(TOO_MANY_ADDRESSES);
    for (let i = 0; i < count; i++)
      if (this.#mappings.has(first + i)) throw fault('invalid-argument', `page address ${first + i} is in use`);
  }

  #lookup(address: number): Mapping {
    const mapping = this.#mappings.get(address);
    if (!mapping) throw this.#missingFault(address);
    const failure = this.failures.of(address);
    if (failure) throw dependencyFault(failure);
    return mapping;
  }

  #missingFault(address: number): Error {
    if (this.terminationCause !== undefined) return fault('terminated', this.terminationCause);
    const failure = this.failures.of(address);
    if (failure) return dependencyFault(failure);
    return fault('not-owned', `page ${address} is not held: never allocated, or freed`);
  }

  #map(address: number, page: Page, masked: number): void {
    this.#mappings.set(address, { address, page, masked, isMapped: true, text: undefined });
    this.#hold(page);
  }

  #unmap(address: number): void {
    const mapping = this.#mappings.get(address) as Mapping;
    mapping.isMapped = false;
    this.#mappings.delete(address);
    this.failures.forget(address);
    this.#unhold(mapping.page);
  }

  #move(mapping: Mapping, page: Page): void {
    const { page: oldPage } = mapping;
    mapping.page = page;
    this.#hold(page);
    this.#unhold(oldPage);
  }

  #hold(page: Page): void {
    const countBefore = this.#holdCounts.get(page) ?? 0;
    this.#holdCounts.set(page, countBefore + 1);
    if (countBefore === 0) this.limits.hold(page);
  }

  #unhold(page: Page): void {
    const remaining = (this.#holdCounts.get(page) ?? 0) - 1;
    if (remaining > 0) this.#holdCounts.set(page, remaining);
    else {
      this.#holdCounts.delete(page);
      this.limits.letGo(page);
    }
    this.pool.release(page);
  }
}

/** An empty slot that a call will fill. */
export interface EmptySlot {
  readonly page: Page;
  readonly slot: number;
}

/** The first `count` empty slots of pages that may be written, as `roomIn` found them. */
export function slotsIn({ pageSize }: PagePool, rooms: readonly Mapping[], count: number): EmptySlot[] {
  const slots: EmptySlot[] = [];
  for (const { page } of rooms) {
    for (let slot = 0; slot < pageSize && slots.length < count; slot++) {
      if ((page.filled & (1 << slot)) === 0) slots.push({ page, slot });
    }
  }
  return slots;
}

/**
 * The physical slot that the next input of a call would fill, on a page that is on the device and that only this inferlet holds. Undefined when
 * there is none: the call would move a page first, or fail.
 */
export function emptySlot(space: PageSpace, addresses: Uint32Array): number | undefined {
  const { fullBits, pageSize } = space.pool;
  for (const address of addresses) {
    const page = space.pageAt(address);
    if (page?.filled === fullBits) continue;
    if (!page || page.frame < 0 || page.references > 1) return undefined;
    for (let slot = 0; slot < pageSize; slot++)
      if ((page.filled & (1 << slot)) === 0) return page.frame * pageSize + slot;
  }
  return undefined;
}

/**
 * The mappings of `addresses` whose pages have the first `count` empty slots; they need be neither resident nor writable.
 * @throws CallFault `context-overflow` when there are fewer, `invalid-argument` when an address is named twice, `limit-exceeded`
 */
export function roomIn(space: PageSpace, addresses: Uint32Array, count: number): Mapping[] {
  const roomMappings = new Set<Mapping>();
  const { fullBits, pageSize } = space.pool;
  // After the write no two mappings share a page, so each counts against the limit.
  const { maxOwnPages } = space.limits;
  let emptyCount = 0;
  for (const address of addresses) {
    const mapping = space.peek(address);
    if (emptyCount >= count || mapping.page.filled === fullBits) continue;
    if (roomMappings.has(mapping)) throw fault('invalid-argument', `page ${address} is named twice in the out-pages`);
    if (roomMappings.size === maxOwnPages)
      throw fault('limit-exceeded', `more than ${maxOwnPages} pages to write, which is all that the inferlet may hold`);
    roomMappings.add(mapping);
    emptyCount += pageSize - bitCount(mapping.page.filled);
  }
  if (emptyCount < count) {
    throw fault(
      'context-overflow',
      `${count} inputs need as many empty slots and the out-pages have ${emptyCount}; allocate more pages`,
    );
  }
  return [...roomMappings];
}

/** Checks that the limits allow copies of the shared pages. @returns the number of mappings of each page. @throws CallFault `limit-exceeded` */
export function checkCopies(space: PageSpace, mappings: readonly Mapping[]): Map<Page, number> {
  const { held, limits } = space;
  const mappingCounts = new Map<Page, number>();
  for (const { page } of mappings) mappingCounts.set(page, (mappingCounts.get(page) ?? 0) + 1);
  let growth = 0;
  let tenantGrowth = 0;
  for (const [page, count] of mappingCounts) {
    // Afterwards each mapping has a page of its own. If the space (or its tenant) then does not hold the old page, one of these only replaces it.
    const stays = (held.get(page) ?? 0) > count;
    growth += stays ? count : count - 1;
    tenantGrowth += stays || limits.tenantHolders(page) > 1 ? count : count - 1;
  }
  space.checkLimit(growth, tenantGrowth);
  return mappingCounts;
}

/** Moves mappings of shared pages, which are on the device, to copies of their own. @throws CallFault, and moves none then */
export function copyShared(space: PageSpace, mappings: readonly Mapping[]): void {
  space.memory.claim(space, 0, checkCopies(space, mappings));
  for (const mapping of mappings) if (holders(mapping.page) > 1) moveToCopy(space, mapping);
  for (const mapping of mappings) {
    if (!mapping.page.inTree) continue;
    // A copy keeps the page cached. A cached page is not worth memory pressure, so copy only while a frame is free.
    if (space.pool.free > 0) moveToCopy(space, mapping);
    else space.memory.uncache(mapping.page);
  }
}

function moveToCopy(space: PageSpace, mapping: Mapping): void {
  const copy = copyPage(space, mapping.page);
  space.remap(mapping, copy);
  space.pool.release(copy);
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
