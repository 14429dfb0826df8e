import type { HandlerError } from '../protocol/errors.ts';
import { Failures } from './failures.ts';
import { dependencyFault, fault } from './fault.ts';
import { fillSlot, type Page, type PagePool } from './pool.ts';

/** What an address stands for. */
export interface Mapping {
  page: Page;
  /** Bit `s` set hides slot `s` from calls through this address. */
  masked: number;
}

/** Copies keys and values between physical slots, pairwise. */
export type SlotCopier = (sources: Uint32Array, destinations: Uint32Array) => void;

/** An empty slot that a call will fill. */
export interface EmptySlot {
  readonly page: Page;
  readonly slot: number;
}

/**
 * The pages of one inferlet on one model, by address. Every access checks that the address is held. Pages are shared copy-on-write: a
 * write through an address whose page has other holders moves the address to a copy first.
 */
export class PageSpace {
  readonly pool: PagePool;
  /** Most distinct physical pages. */
  readonly maxPages: number;
  #mappings = new Map<number, Mapping>();
  /** Addresses per physical page; its size is what counts against the limit. */
  #held = new Map<Page, number>();
  /** What failed calls should have made. */
  readonly failures = new Failures();
  #copy: SlotCopier;

  constructor(pool: PagePool, maxPages: number, copy: SlotCopier) {
    this.pool = pool;
    this.maxPages = maxPages;
    this.#copy = copy;
  }

  /** Distinct physical pages held. */
  get heldPages(): number {
    return this.#held.size;
  }

  get addresses(): Iterable<number> {
    return this.#mappings.keys();
  }

  has(address: number): boolean {
    return this.#mappings.has(address);
  }

  /**
   * Claims `count` pages at `first`, `first + 1`, …
   * @throws CallFault `limit-exceeded` past the inferlet's limit or when the pool has too few; nothing is claimed then.
   */
  allocate(first: number, count: number): void {
    if (count > this.pool.total)
      throw fault('limit-exceeded', `${count} pages were asked and the whole pool has ${this.pool.total}`);
    this.#checkNew(first, count);
    this.#checkRoom(count);
    for (let i = 0; i < count; i++) this.#map(first + i, this.pool.take() as Page, 0);
  }

  /** Marks what these addresses hold as never computed, because of `cause` in `source`; addresses that are not held are left alone. */
  fail(addresses: Uint32Array, cause: HandlerError, source: object): void {
    for (const address of addresses) if (this.#mappings.has(address)) this.failures.mark(address, cause, source);
  }

  /** Gives addresses back. @throws CallFault `not-owned` when one is not held (or is named twice); nothing is freed then. */
  free(addresses: Uint32Array): void {
    const distinct = new Set(addresses);
    if (distinct.size !== addresses.length) throw fault('invalid-argument', 'a page is named twice in one free');
    for (const address of addresses) if (!this.#mappings.has(address)) throw this.#missing(address);
    for (const address of addresses) this.#unmap(address);
  }

  /** Gives everything back. */
  releaseAll(): void {
    for (const address of [...this.#mappings.keys()]) this.#unmap(address);
    this.failures.clear();
  }

  /** Maps the pages of `sources` at `first`, `first + 1`, …, with the sources' masks. */
  share(sources: Uint32Array, first: number): void {
    this.#checkNew(first, sources.length);
    const mappings: Mapping[] = [];
    for (const source of sources) mappings.push(this.mapping(source));
    for (let i = 0; i < mappings.length; i++) {
      const { page, masked } = mappings[i] as Mapping;
      this.pool.retain(page);
      this.#map(first + i, page, masked);
    }
  }

  mask(address: number, slots: number): void {
    const outside = slots & ~this.pool.fullBits;
    if (outside !== 0)
      throw fault('invalid-argument', `the mask ${slots >>> 0} names slots past the page's ${this.pool.pageSize}`);
    this.mapping(address).masked = slots >>> 0;
  }

  /** What `address` stands for. @throws CallFault `not-owned`, or `dependency-failed` when a failed call should have filled it. */
  mapping(address: number): Mapping {
    const mapping = this.#mappings.get(address);
    if (!mapping) throw this.#missing(address);
    const failure = this.failures.of(address);
    if (failure) throw dependencyFault(failure);
    return mapping;
  }

  /**
   * The first `count` empty slots of `addresses`, in order, on pages that this inferlet may write: shared ones are copied first.
   * @throws CallFault `context-overflow` when there are fewer, `invalid-argument` when an address is named twice, `limit-exceeded` when a copy cannot be had.
   */
  emptySlots(addresses: Uint32Array, count: number): EmptySlot[] {
    const slots: EmptySlot[] = [];
    const wanted: Mapping[] = [];
    let room = 0;
    for (const address of addresses) {
      const mapping = this.mapping(address);
      if (room >= count || mapping.page.filled === this.pool.fullBits) continue;
      const empty = this.pool.pageSize - bitCount(mapping.page.filled);
      if (wanted.includes(mapping)) throw fault('invalid-argument', `page ${address} is named twice in the out-pages`);
      wanted.push(mapping);
      room += empty;
    }
    if (room < count) {
      throw fault(
        'context-overflow',
        `${count} inputs need as many empty slots and the out-pages have ${room}; allocate more pages`,
      );
    }
    this.#makeWritable(wanted);
    for (const mapping of wanted) {
      const { page } = mapping;
      for (let slot = 0; slot < this.pool.pageSize && slots.length < count; slot++) {
        if ((page.filled & (1 << slot)) === 0) slots.push({ page, slot });
      }
    }
    return slots;
  }

  /** Copies slots with their flags; `destination` may be the same page. */
  copySlots(source: number, sourceOffset: number, destination: number, destinationOffset: number, count: number): void {
    const size = this.pool.pageSize;
    if (sourceOffset + count > size || destinationOffset + count > size) {
      throw fault(
        'invalid-argument',
        `${count} slots from ${sourceOffset} to ${destinationOffset} reach past the page's ${size} slots`,
      );
    }
    const from = this.mapping(source);
    const to = this.mapping(destination);
    if (count === 0) return;
    this.#makeWritable([to]);
    const sources = new Uint32Array(count);
    const destinations = new Uint32Array(count);
    const { filled } = from.page;
    const { masked } = from;
    const positions = from.page.positions.slice(sourceOffset, sourceOffset + count);
    let copied = 0;
    for (let i = 0; i < count; i++) {
      const bit = 1 << (destinationOffset + i);
      const sourceBit = 1 << (sourceOffset + i);
      to.page.filled = (to.page.filled & ~bit) >>> 0;
      to.masked = (masked & sourceBit ? to.masked | bit : to.masked & ~bit) >>> 0;
      if ((filled & sourceBit) === 0) continue;
      fillSlot(to.page, destinationOffset + i, positions[i] as number);
      sources[copied] = from.page.index * size + sourceOffset + i;
      destinations[copied++] = to.page.index * size + destinationOffset + i;
    }
    if (copied > 0) this.#copy(sources.subarray(0, copied), destinations.subarray(0, copied));
  }

  /** Moves mappings of shared pages to copies of their own. All or nothing. */
  #makeWritable(mappings: readonly Mapping[]): void {
    let copies = 0;
    for (const mapping of mappings) if (mapping.page.references > 1) copies++;
    if (copies === 0) return;
    let growth = 0;
    for (const mapping of mappings)
      if (mapping.page.references > 1 && (this.#held.get(mapping.page) ?? 0) > 1) growth++;
    this.#checkLimit(growth);
    if (copies > this.pool.free) throw this.#outOfPages(copies);
    for (const mapping of mappings) if (mapping.page.references > 1) this.#copyPage(mapping);
  }

  #copyPage(mapping: Mapping): void {
    const { page } = mapping;
    const copy = this.pool.take() as Page;
    const slots: number[] = [];
    for (let slot = 0; slot < this.pool.pageSize; slot++) if (page.filled & (1 << slot)) slots.push(slot);
    if (slots.length > 0) {
      const base = page.index * this.pool.pageSize;
      const target = copy.index * this.pool.pageSize;
      this.#copy(
        Uint32Array.from(slots, (slot) => base + slot),
        Uint32Array.from(slots, (slot) => target + slot),
      );
    }
    copy.filled = page.filled;
    copy.maxPosition = page.maxPosition;
    copy.positions.set(page.positions);
    mapping.page = copy;
    this.#hold(copy);
    this.#unhold(page);
  }

  #checkNew(first: number, count: number): void {
    if (first + count > 0x1_0000_0000) throw fault('invalid-argument', 'page addresses past 2^32');
    for (let i = 0; i < count; i++) {
      if (this.#mappings.has(first + i)) throw fault('invalid-argument', `page address ${first + i} is in use`);
    }
  }

  #checkRoom(count: number): void {
    this.#checkLimit(count);
    if (count > this.pool.free) throw this.#outOfPages(count);
  }

  #checkLimit(count: number): void {
    if (this.#held.size + count <= this.maxPages) return;
    throw fault(
      'limit-exceeded',
      `${this.#held.size} pages are held and ${count} more are needed; ${this.maxPages} is the invocation's limit (manifest: limits.pages)`,
    );
  }

  #outOfPages(count: number): Error {
    return fault(
      'limit-exceeded',
      `out of memory on the device: ${count} pages are needed and ${this.pool.free} of ${this.pool.total} are free`,
    );
  }

  #missing(address: number): Error {
    const failure = this.failures.of(address);
    if (failure) return dependencyFault(failure);
    return fault('not-owned', `page ${address} is not held: never allocated, or freed`);
  }

  #map(address: number, page: Page, masked: number): void {
    this.#mappings.set(address, { page, masked });
    this.#hold(page);
  }

  #unmap(address: number): void {
    const mapping = this.#mappings.get(address) as Mapping;
    this.#mappings.delete(address);
    this.failures.forget(address);
    this.#unhold(mapping.page);
  }

  #hold(page: Page): void {
    this.#held.set(page, (this.#held.get(page) ?? 0) + 1);
  }

  #unhold(page: Page): void {
    const left = (this.#held.get(page) ?? 0) - 1;
    if (left > 0) this.#held.set(page, left);
    else this.#held.delete(page);
    this.pool.release(page);
  }
}

/** Set bits of a page's flags. */
export function bitCount(bits: number): number {
  let count = 0;
  for (let left = bits >>> 0; left !== 0; left &= left - 1) count++;
  return count;
}
