import { fault } from './fault.ts';
import { bitCount, holders, type Page, type PagePool } from './pool.ts';
import type { Mapping, PageSpace } from './space.ts';
import { copyPage } from './space-copy.ts';

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
