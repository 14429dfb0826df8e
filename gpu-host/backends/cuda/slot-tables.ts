/** The part of a sequence's slot list that the device has. */
export interface TablePlace {
  /** First word of the list among the device's table words. */
  readonly table: number;
  /** Number of leading slots of the context that are there already. */
  readonly known: number;
}

interface Table {
  readonly start: number;
  readonly size: number;
  /** Length of the list: the context of its last batch, and the slots that the batch wrote. */
  length: number;
  /** The last slot of the list. When the sequence continues, its context ends with this slot. */
  lastSlot: number;
  /** Number of the last batch that used the table. */
  lastBatch: number;
}

/** A shorter context is sent whole with each step: that costs less than finding its table. */
const MIN_CONTEXT_SLOTS = 128;
const MIN_TABLE_SLOTS = 256;
/** An unused table is kept for this many batches even if others want room: sequences that take turns must not evict each other. */
const KEPT_BATCHES = 32;

/**
 * Manages the slot lists that the device keeps between steps, so that a step brings only the slots that changed (`native/engine/engine.h`,
 * `Sequence::table`). This class holds a copy of the device's words. It finds a list by its last slot and compares the list with the copy word by
 * word, so that no caller needs to report a moved page. It takes memory only for the copy, and calls no device.
 */
export class SlotTables {
  readonly #words: Uint32Array;
  readonly #bytes: Buffer;
  readonly #allocator: BlockAllocator;
  /** Least recently used first. */
  readonly #tables = new Set<Table>();
  readonly #byLastSlot = new Map<number, Table>();
  #batch = 0;

  /** @param slots number of the device's table words */
  constructor(slots: number) {
    this.#words = new Uint32Array(slots);
    this.#bytes = Buffer.from(this.#words.buffer);
    this.#allocator = new BlockAllocator(slots);
  }

  /** Number of lists that have a table. */
  get count(): number {
    return this.#tables.size;
  }

  /** Begins a batch. Its sequences get different tables. */
  begin(): void {
    this.#batch++;
  }

  /**
   * Returns the place of a sequence's list: `context`, then the slots of the inputs. Returns undefined if the step must bring the whole list, because
   * the list is short, lists in use take all room, or the inputs keep no keys and the list has no table yet. If the device does not take the batch,
   * the caller must call `clear`.
   * @param writes slots of the inputs, or none when their keys live for the step only
   */
  place(context: Uint32Array, inputs: number, writes: Uint32Array): TablePlace | undefined {
    if (context.length < MIN_CONTEXT_SLOTS) return undefined;
    let table = this.#byLastSlot.get(context[context.length - 1] as number);
    if (table?.lastBatch === this.#batch) table = undefined;
    const needed = context.length + inputs;
    if (table && table.size < needed) {
      this.#drop(table);
      table = undefined;
    }
    // A sequence that keeps no keys uses its table, but gets no new one.
    if (!table && writes.length > 0) table = this.#make(needed);
    if (!table) return undefined;
    const { start } = table;
    const known = this.#equalLength(table, context);
    if (known < context.length) this.#words.set(context.subarray(known), start + known);
    for (let i = 0; i < writes.length; i++) this.#words[start + context.length + i] = writes[i] as number;
    this.#use(table, context.length + writes.length);
    return { table: start, known };
  }

  /** Forgets all tables: the device did not take a batch, so its words are unknown. */
  clear(): void {
    for (const table of this.#tables) this.#drop(table);
  }

  /** Number of leading slots in which a table and a context agree. Compares bytes, because the runtime compares them by vectors. */
  #equalLength({ start, length }: Table, context: Uint32Array): number {
    const bytes = new Uint8Array(context.buffer, context.byteOffset, context.byteLength);
    const isEqual = (from: number, end: number) =>
      this.#bytes.compare(bytes, 4 * from, 4 * end, 4 * (start + from), 4 * (start + end)) === 0;
    let end = Math.min(length, context.length);
    if (isEqual(0, end)) return end;
    let equalLength = 0;
    while (end - equalLength > 1) {
      const middle = (equalLength + end) >>> 1;
      if (isEqual(equalLength, middle)) equalLength = middle;
      else end = middle;
    }
    return equalLength;
  }

  #use(table: Table, length: number): void {
    if (this.#byLastSlot.get(table.lastSlot) === table) this.#byLastSlot.delete(table.lastSlot);
    table.length = length;
    table.lastSlot = this.#words[table.start + length - 1] as number;
    table.lastBatch = this.#batch;
    this.#byLastSlot.set(table.lastSlot, table);
    this.#tables.delete(table);
    this.#tables.add(table);
  }

  /** Makes an empty table, with room to grow. */
  #make(needed: number): Table | undefined {
    const size = sizeFor(needed);
    if (!this.#allocator.fits(size)) return undefined;
    let start = this.#allocator.take(size);
    for (const oldest of this.#tables) {
      if (start !== undefined || oldest.lastBatch + KEPT_BATCHES >= this.#batch) break;
      this.#drop(oldest);
      start = this.#allocator.take(size);
    }
    return start === undefined ? undefined : { start, size, length: 0, lastSlot: -1, lastBatch: 0 };
  }

  #drop(table: Table): void {
    this.#tables.delete(table);
    if (this.#byLastSlot.get(table.lastSlot) === table) this.#byLastSlot.delete(table.lastSlot);
    this.#allocator.give(table.start, table.size);
  }
}

/** Blocks of powers of two within a range: a buddy allocator (Knowlton, 1965). */
class BlockAllocator {
  /** Starts of free blocks, by size. */
  readonly #free = new Map<number, Set<number>>();
  readonly #largestBlock: number;

  constructor(length: number) {
    let start = 0;
    let largestBlock = 0;
    for (let size = 2 ** 31; size >= MIN_TABLE_SLOTS; size /= 2) {
      this.#free.set(size, new Set());
      if (start + size > length) continue;
      this.#free.get(size)?.add(start);
      largestBlock ||= size;
      start += size;
    }
    this.#largestBlock = largestBlock;
  }

  /** True when an empty allocator has a block of this size. */
  fits(size: number): boolean {
    return size <= this.#largestBlock;
  }

  take(size: number): number | undefined {
    if (!this.fits(size)) return undefined;
    const starts = this.#free.get(size) as Set<number>;
    for (const start of starts) {
      starts.delete(start);
      return start;
    }
    const start = this.take(2 * size);
    if (start !== undefined) starts.add(start + size);
    return start;
  }

  give(start: number, size: number): void {
    // Blocks begin at multiples of their sizes, so the bit of the size tells a block from its buddy.
    const buddy = start % (2 * size) === 0 ? start + size : start - size;
    const starts = this.#free.get(size) as Set<number>;
    if (starts.delete(buddy)) this.give(Math.min(start, buddy), 2 * size);
    else starts.add(start);
  }
}

function sizeFor(needed: number): number {
  return Math.max(MIN_TABLE_SLOTS, 2 ** Math.ceil(Math.log2(needed)));
}
