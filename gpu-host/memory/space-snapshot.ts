import { departures } from '#scheduler/policies/leases.ts';
import type { Operation } from '../protocol/operations.ts';
import { fault } from './fault.ts';
import type { Mapping } from './known-text.ts';
import type { Leases } from './leases.ts';
import type { FrozenPage, PageSnapshot } from './pool.ts';
import { bitCount, fillSlot, holders, largestPosition, type Page, type PagePool } from './pool.ts';
import { checkCopies, type EmptySlot, type PageSpace, slotsIn } from './space.ts';
import type { Tenants } from './tenants.ts';
import type { TransferBuffer, TransferBuffers } from './transfers.ts';

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

/** The fields of `copy-slots`, see wit/allocate.wit. */
export type SlotCopy = Omit<Operation<'copy-slots'>, 'op'>;

/** The fields of `copy-tokens`, see wit/allocate.wit. */
export type TokenCopy = Omit<Operation<'copy-tokens'>, 'op'>;

/** Maximum position that a shift can express. */
const MAX_POSITION = 0x7fff_ffff;

/** Maximum pages that one `TokenCopying.next` makes writable. Each page may need a copy of about 40 µs, so one call takes at most about 0.6 ms. */
const ROOMS_A_PART = 16;
/** Maximum tokens that one `TokenCopying.next` copies. */
const TOKENS_A_PART = 128;

/** One slot to copy. */
interface SlotMove {
  readonly from: Page;
  readonly fromSlot: number;
  readonly to: Page;
  readonly toSlot: number;
  readonly position: number;
}

/** Copies a page into a free frame; there must be one. The copy has one reference, which the caller owns. */
export function copyPage(space: PageSpace, page: Page): Page {
  const { pool } = space;
  const copy = pool.take(space.account);
  if (!copy) throw new Error('a page is copied without a free frame');
  const slots: number[] = [];
  for (let slot = 0; slot < pool.pageSize; slot++) if (page.filled & (1 << slot)) slots.push(slot);
  if (slots.length > 0) {
    const base = page.frame * pool.pageSize;
    const target = copy.frame * pool.pageSize;
    space.memory.copySlots(
      space,
      Uint32Array.from(slots, (slot) => base + slot),
      Uint32Array.from(slots, (slot) => target + slot),
    );
  }
  copy.filled = page.filled;
  copy.maxPosition = page.maxPosition;
  copy.positions.set(page.positions);
  copy.prefix = page.prefix?.first(page.prefix.known);
  return copy;
}

/**
 * Copies keys, values, positions, and the filled and masked flags of `count` slots. Source and destination may be one page, and overlap.
 * @throws CallFault `invalid-argument`, `unsupported` when keys cannot be shifted, or what a copy-on-write throws
 */
export function copySlots(space: PageSpace, request: SlotCopy): void {
  const { source, sourceOffset, destination, destinationOffset, count, shift } = request;
  const size = space.pool.pageSize;
  if (sourceOffset + count > size || destinationOffset + count > size) {
    throw fault(
      'invalid-argument',
      `${count} slots from ${sourceOffset} to ${destinationOffset} reach past the page's ${size} slots`,
    );
  }
  if (shift !== 0) checkRotates(space);
  const { page, masked } = space.peek(source);
  // Throws when the destination is not held, before anything changes.
  space.peek(destination);
  const positions = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    if (page.filled & (1 << (sourceOffset + i)))
      positions[i] = shiftPosition(page.positions[sourceOffset + i] as number, shift);
  }
  if (count === 0) return;
  space.makeResident([space.peek(source)]);
  const target = space.mapping(destination);
  space.makeWritable([target]);
  const sourcePage = space.mapping(source).page;
  // Read the source's flags before the destination's change: both may be the same page.
  const { filled } = sourcePage;
  const moves: SlotMove[] = [];
  const shifts = shift === 0 ? undefined : new Int32Array(count).fill(shift);
  for (let i = 0; i < count; i++) {
    const bit = 1 << (destinationOffset + i);
    const sourceBit = 1 << (sourceOffset + i);
    target.page.filled = (target.page.filled & ~bit) >>> 0;
    target.masked = (masked & sourceBit ? target.masked | bit : target.masked & ~bit) >>> 0;
    if ((filled & sourceBit) === 0) continue;
    const position = positions[i] as number;
    moves.push({
      from: sourcePage,
      fromSlot: sourceOffset + i,
      to: target.page,
      toSlot: destinationOffset + i,
      position,
    });
  }
  target.page.prefix = undefined;
  perform(space, moves, shifts?.subarray(0, moves.length));
}

/**
 * Copies single tokens and their masks to the first empty slots of the destinations. Each `next` does one short part, so that device steps and
 * other work can go in between. A page may be both source and destination. The caller keeps other calls away from all these pages until the
 * last part is done, and stops when the space ends.
 */
export class TokenCopying {
  readonly #space: PageSpace;
  readonly #tokens: readonly SourceToken[];
  readonly #shifts: Int32Array | undefined;
  readonly #positions: Uint32Array;
  /** Mappings of the destination pages that get the tokens: those with the first empty slots. */
  readonly #rooms: readonly Mapping[];
  /** Number of `#rooms` that are writable. */
  #writableRooms = 0;
  /** Slots that get the tokens, once all rooms are writable. */
  #slots: readonly EmptySlot[] | undefined;
  /** Number of copied tokens. */
  #copiedTokens = 0;

  /**
   * Checks the request, and changes nothing.
   * @throws CallFault `invalid-argument`, `context-overflow` when the destinations have too few empty slots, `unsupported` when keys cannot
   *   be shifted, `limit-exceeded`
   */
  constructor(space: PageSpace, { sources, indices, destinations, positions }: TokenCopy) {
    if (positions.length > 0 && positions.length !== indices.length)
      throw fault(
        'invalid-argument',
        `${positions.length} positions for ${indices.length} tokens: give one for each token, or none`,
      );
    this.#space = space;
    // Check the room before the tokens: this bounds the tokens to look up by the destinations' slots.
    this.#rooms = space.roomIn(destinations, indices.length);
    this.#tokens = sourceTokens(space, sources, indices);
    this.#positions = positions;
    this.#shifts = positions.length > 0 ? shiftsTo(space, this.#tokens, positions) : undefined;
    // Only the check is needed here: `makeWritable` counts the mappings again.
    checkCopies(space, this.#rooms);
  }

  /** Does one part; false when it was the last. After a CallHeld, `next` may be called again. @throws as `makeWritable` and `makeResident` */
  next(): boolean {
    if (this.#writableRooms < this.#rooms.length) {
      const end = Math.min(this.#writableRooms + ROOMS_A_PART, this.#rooms.length);
      this.#space.makeWritable(this.#rooms.slice(this.#writableRooms, end));
      this.#writableRooms = end;
    } else if (!this.#slots) {
      this.#slots = slotsIn(this.#space.pool, this.#rooms, this.#tokens.length);
      setMasks(this.#tokens, this.#rooms, this.#slots);
      for (const { page } of this.#slots) page.prefix = undefined;
    } else this.#move(this.#slots);
    return !this.#slots || this.#copiedTokens < this.#tokens.length;
  }

  #move(slots: readonly EmptySlot[]): void {
    const space = this.#space;
    const firstToken = this.#copiedTokens;
    const tokens = this.#tokens.slice(firstToken, firstToken + TOKENS_A_PART);
    // Bring the destinations back as well as the sources: the inferlet may have been preempted since the last part.
    const targetPages = new Set(slots.slice(firstToken, firstToken + tokens.length).map(({ page }) => page));
    const rooms = this.#rooms.filter(({ page }) => targetPages.has(page));
    space.makeResident([...tokens.map(({ address }) => space.peek(address)), ...rooms]);
    const moves = tokens.map(({ address, slot, position }, i): SlotMove => {
      const { page: to, slot: toSlot } = slots[firstToken + i] as EmptySlot;
      const from = space.mapping(address).page;
      return { from, fromSlot: slot, to, toSlot, position: this.#positions[firstToken + i] ?? position };
    });
    perform(space, moves, this.#shifts?.slice(firstToken, firstToken + moves.length));
    this.#copiedTokens += moves.length;
  }
}

/** A filled slot of a source page. */
interface SourceToken {
  readonly address: number;
  readonly slot: number;
  readonly position: number;
  readonly masked: boolean;
}

/** The filled slots at `indices`, counted over all of `addresses`. @throws CallFault `invalid-argument` for an index past the last */
function sourceTokens(space: PageSpace, addresses: Uint32Array, indices: Uint32Array): SourceToken[] {
  /** Filled slots up to the end of each page. */
  const ends = new Uint32Array(addresses.length);
  let tokenCount = 0;
  for (const [i, address] of addresses.entries()) {
    tokenCount += bitCount(space.peek(address).page.filled);
    ends[i] = tokenCount;
  }
  return Array.from(indices, (index) => {
    if (index >= tokenCount)
      throw fault('invalid-argument', `token index ${index} is too large: the source pages hold ${tokenCount} tokens`);
    const pageIndex = firstAbove(ends, index);
    const address = addresses[pageIndex] as number;
    const { page, masked } = space.peek(address);
    const slot = filledSlot(page, index - (pageIndex > 0 ? (ends[pageIndex - 1] as number) : 0));
    return { address, slot, position: page.positions[slot] as number, masked: (masked & (1 << slot)) !== 0 };
  });
}

/** Index of the first of the rising `numbers` that is larger than `value`; one must exist. */
function firstAbove(numbers: Uint32Array, value: number): number {
  let [low, high] = [0, numbers.length - 1];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((numbers[middle] as number) > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The filled slot with `precedingCount` filled slots before it. */
function filledSlot({ filled }: Page, precedingCount: number): number {
  let remainingBits = filled;
  for (let i = 0; i < precedingCount; i++) remainingBits &= remainingBits - 1;
  // The index of the lowest remaining bit.
  return 31 - Math.clz32(remainingBits & -remainingBits);
}

function shiftsTo(space: PageSpace, tokens: readonly SourceToken[], positions: Uint32Array): Int32Array | undefined {
  const shifts = new Int32Array(tokens.length);
  let hasShift = false;
  for (const [i, { position }] of tokens.entries()) {
    const newPosition = positions[i] as number;
    shifts[i] = shiftPosition(position, newPosition - position) - position;
    if (shifts[i] !== 0) hasShift = true;
  }
  if (!hasShift) return undefined;
  checkRotates(space);
  return shifts;
}

/** Gives each copied token the mask of its source. */
function setMasks(tokens: readonly SourceToken[], rooms: readonly Mapping[], slots: readonly EmptySlot[]): void {
  let index = 0;
  for (const room of rooms) {
    for (; index < slots.length && slots[index]?.page === room.page; index++) {
      const bit = 1 << (slots[index]?.slot as number);
      room.masked = (tokens[index]?.masked ? room.masked | bit : room.masked & ~bit) >>> 0;
    }
  }
}

function perform(space: PageSpace, moves: readonly SlotMove[], shifts: Int32Array | undefined): void {
  if (moves.length === 0) return;
  const size = space.pool.pageSize;
  const sources = Uint32Array.from(moves, ({ from, fromSlot }) => from.frame * size + fromSlot);
  const destinations = Uint32Array.from(moves, ({ to, toSlot }) => to.frame * size + toSlot);
  space.memory.copySlots(space, sources, destinations, shifts);
  for (const { to, toSlot, position } of moves) fillSlot(to, toSlot, position);
}

function shiftPosition(position: number, shift: number): number {
  const newPosition = position + shift;
  if (newPosition >= 0 && newPosition <= MAX_POSITION) return newPosition;
  throw fault(
    'invalid-argument',
    `position ${position} moved by ${shift} is ${newPosition}; positions are 0 to ${MAX_POSITION}`,
  );
}

function checkRotates(space: PageSpace): void {
  if (!space.memory.rotates)
    throw fault('unsupported', 'the keys of this model cannot be rotated to other positions: copy without a shift');
}
