import {
  type Place,
  PROTECTED_DEVICE_STEPS,
  PROTECTED_TOKENS,
  type Preemptible,
} from '#scheduler/policies/preemption.ts';
import type { TenantLimit } from '../protocol/calls.ts';
import type { HandlerError } from '../protocol/errors.ts';
import { MAX_PAGE_ADDRESSES, TOO_MANY_ADDRESSES } from '../protocol/page-budget.ts';
import { CallFault, CallHeld, dependencyFault, Failures, type FamilyName, fault } from './fault.ts';
import { type ContextPages, KnownText, type Mapping } from './known-text.ts';
import {
  bitCount,
  type FrozenPage,
  holders,
  type Page,
  type PageAccount,
  type PagePool,
  type PageSnapshot,
} from './pool.ts';
import type { PrefixTree } from './prefix/tree.ts';
import { beginPrefix, type PrefixPeek, type PrefixRequest, type PrefixRun, peekPrefix } from './space-prefix.ts';
import { copyPage, copySlots, type SlotCopy, snapshotOf } from './space-snapshot.ts';
import type { SpaceLimits } from './tenants.ts';

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

/** Counts the steps of the device. */
export interface DeviceSteps {
  readonly count: number;
}

/**
 * A family (an invocation and its children) on one model, as preemption sees it. Preemption takes the whole family off the device, and brings it
 * back as a whole. While the family is away, its calls are held and its pages may go to swap. After its return it is protected from preemption
 * for some of its steps.
 */
export class Contender implements Preemptible<PageAccount> {
  /** Account of the family's tenant. */
  readonly account: PageAccount;
  readonly arrival: number;
  readonly order: number;
  readonly spaces = new Set<PageSpace>();
  #heldCalls = 0;
  /** Frames of the largest claim of a held call since the family's last step. */
  wanted = 0;
  /**
   * True when no family fitted into its tenant's share and this one was the first of them: until it is preempted, its claims may take all pages of
   * tenants that wait as well.
   */
  isForced = false;
  /** Time before which the family does not return, ms. */
  heldUntilMs = Number.NEGATIVE_INFINITY;
  readonly #device: DeviceSteps;
  #isAway = false;
  #protectedSteps = 0;
  #overtook: Place | undefined;
  /** Count of device steps at which the protection ends, even if the family has made few steps. */
  #protectedUntil = 0;

  constructor(account: PageAccount, arrival: number, order: number, device: DeviceSteps) {
    this.account = account;
    this.arrival = arrival;
    this.order = order;
    this.#device = device;
  }

  /** Number of held calls. A family that is away and has no held call needs no memory. */
  get heldCalls(): number {
    return this.#heldCalls;
  }

  set heldCalls(calls: number) {
    this.account.heldCalls += calls - this.#heldCalls;
    this.#heldCalls = calls;
  }

  /** True from when the family is preempted until it returns. */
  get isAway(): boolean {
    return this.#isAway;
  }

  get protectedSteps(): number {
    return this.#device.count < this.#protectedUntil ? this.#protectedSteps : 0;
  }

  get overtook(): Place | undefined {
    return this.#overtook;
  }

  /** True when the family is not preempted and one of its members holds pages and is not idle. */
  get runs(): boolean {
    if (this.#isAway) return false;
    for (const space of this.spaces) if (space.heldPages > 0 && !space.idle) return true;
    return false;
  }

  /** True while a step or a transfer uses frames of the family's pages. */
  get isPinned(): boolean {
    for (const { pins } of this.spaces) if (pins > 0) return true;
    return false;
  }

  /** Begins the preemption. */
  leave(): void {
    this.#isAway = true;
    this.isForced = false;
  }

  /** Ends the preemption. @param overtook the newest of the older families that stay away: that one and older ones may preempt this family at once */
  return(overtook?: Contender): void {
    this.#isAway = false;
    // Do not keep the contender itself: it may have overtaken others in turn, and chains of contenders would never be freed.
    this.#overtook = overtook && { arrival: overtook.arrival, order: overtook.order };
    this.#protectedSteps = PROTECTED_TOKENS;
    this.#protectedUntil = this.#device.count + PROTECTED_DEVICE_STEPS;
  }

  /** Counts a step of one of the family's calls. */
  stepped(): void {
    this.wanted = 0;
    this.account.idleSinceMs = undefined;
    if (this.#protectedSteps > 0) this.#protectedSteps--;
  }

  /** Frames that the family needs to go on: `wanted`, and one for each page off the device of members that are not idle. */
  get needed(): number {
    let frames = this.wanted;
    for (const space of this.spaces) {
      if (space.idle) continue;
      for (const page of space.held.keys()) if (page.frame < 0) frames++;
    }
    return frames;
  }

  /** Pages of the family that have a frame. */
  get resident(): number {
    let frames = 0;
    for (const space of this.spaces) for (const page of space.held.keys()) if (page.frame >= 0) frames++;
    return frames;
  }

  /**
   * Frames promised to a protected family, whose pages come back as its calls need them. Returns of other families do not count on these frames. None
   * are promised to one whose inferlets all wait on I/O.
   */
  get promised(): number {
    if (this.#isAway || this.protectedSteps === 0) return 0;
    for (const space of this.spaces) if (!space.idle) return this.needed;
    return 0;
  }
}

/** The families of one model. An inferlet without a family is a contender of its own. */
export class Contenders implements Iterable<Contender> {
  readonly #contenders = new Set<Contender>();
  readonly #families = new Map<string, Contender>();
  readonly #device = { count: 0 };

  [Symbol.iterator](): Iterator<Contender> {
    return this.#contenders.values();
  }

  /** The contender of a space that is being opened: that of its family, or a new one. */
  of(account: PageAccount, arrival: number, order: number, family: FamilyName | undefined): Contender {
    const existing = family && this.#families.get(keyOf(family));
    if (existing) return existing;
    const contender = new Contender(account, arrival, order, this.#device);
    this.#contenders.add(contender);
    if (family) this.#families.set(keyOf(family), contender);
    return contender;
  }

  /** Counts a step of the device. */
  stepped(): void {
    this.#device.count++;
  }

  add(space: PageSpace): void {
    space.contender.spaces.add(space);
  }

  remove(space: PageSpace): void {
    const { contender, owner } = space;
    contender.spaces.delete(space);
    if (contender.spaces.size > 0) return;
    contender.heldCalls = 0;
    this.#contenders.delete(contender);
    if (owner.family) this.#families.delete(keyOf(owner.family));
  }
}

const keyOf = ({ name, epoch }: FamilyName): string => `${epoch} ${name}`;
