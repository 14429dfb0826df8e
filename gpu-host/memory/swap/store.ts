import { randomUUID } from 'node:crypto';
import { closeSync, mkdirSync, openSync, read, readSync, rmSync, write, writeSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';

/** The store's record of one page that is swapped out. Valid until `drop`. */
export interface SwapTicket {
  /** Location of the page now: the store may move it to disk. */
  readonly place: 'memory' | 'disk';
}

/** The disk did not return a page as it was written. Only that page is lost: its holders cannot go on, all others can. */
export class SwapFault extends Error {
  override readonly name = 'SwapFault';
}

export interface SwapOptions {
  /** Bytes of every page. */
  readonly pageBytes: number;
  /** Maximum bytes kept in host memory. The store allocates ordinary memory as needed, and reuses it for later pages. */
  readonly memoryBytes: number;
  /** Maximum bytes kept on disk; 0 for none. The file has one place more, for a page on its way there. */
  readonly diskBytes: number;
  /** Directory for the file, which is made when first needed. */
  readonly directory: string;
  /**
   * Allocates memory that the device reaches fastest. Each call takes long, even one that fails. So the constructor allocates all memory, for many
   * pages at a time. When this function returns undefined, the store uses ordinary memory for these pages, and calls again once they are used up.
   */
  readonly allocate?: ((bytes: number) => Uint8Array | undefined) | undefined;
  /** Waits for the device's queued copies from and to memory of `allocate`. The store calls this before it uses such memory itself. */
  readonly settle?: (() => void) | undefined;
  /** As `settle`, without blocking the thread. */
  readonly settled?: (() => Promise<void>) | undefined;
  /** Makes the file; by default an unnamed one in `directory`. */
  readonly openFile?: (directory: string, pageBytes: number) => SlotFile;
  /** Called when the disk begins to fail, and not again until an operation has succeeded. */
  readonly report: (problem: string) => void;
}

export interface SwapStats {
  readonly memoryPages: number;
  readonly diskPages: number;
  /** Maximum pages in memory and on disk together. */
  readonly capacity: number;
  /** Pages that the disk refused; no data was lost. */
  readonly writeErrors: number;
  /** Pages that the disk did not return intact. */
  readonly readErrors: number;
}

interface Ticket extends SwapTicket {
  place: 'memory' | 'disk';
  slot: number;
  /** CRC-32 of a page on disk; 0 for a page in memory. Kept here and not in the file, so that it also reveals a page in the wrong place. */
  checksum: number;
}

/** Bytes per call of `allocate`: each call of the driver takes long. */
const PIECE_BYTES = 16 * 1024 * 1024;
/** Part of the memory that the store keeps free for the next pages, while the disk has room. */
const FREE_PART = 1 / 8;

/**
 * Stores pages that left the device, bit for bit: in host memory up to a bound, and in one file up to a bound. All methods are synchronous except
 * `fetch`.
 *
 * A write to a disk can take long. So another thread moves the pages that the store has held longest to the file, ahead of need, to keep an eighth
 * of the memory free for the next pages. Only when many pages come at once does `put` itself write to the file.
 *
 * When the disk does not take a page, the store refuses the page as a full store does, and the caller keeps it. When the disk does not return a
 * page, `read` throws a `SwapFault`, and the ticket stays valid until `drop`.
 */
export class SwapStore {
  readonly pageBytes: number;
  #directory: string;
  #openFile: (directory: string, pageBytes: number) => SlotFile;
  readonly #allocate: SwapOptions['allocate'];
  readonly #settle: () => void;
  /** One buffer per page slot allocated so far. */
  #memory: Uint8Array[] = [];
  /** Buffer of one page on its way to the disk. */
  #transitBuffer: Uint8Array | undefined;
  readonly #settled: () => Promise<void> | undefined;
  #memorySlots: SlotNumbers;
  /** One slot more than `#maxDiskPages`, for a page on its way to disk, which still counts as in memory. */
  #diskSlots: SlotNumbers;
  readonly #maxDiskPages: number;
  #file: SlotFile | undefined;
  #liveTickets = new Set<SwapTicket>();
  /** The pages in memory, in the order in which they came. */
  readonly #inMemory = new Set<Ticket>();
  /** True while a page is on its way to disk. */
  #isMoving = false;
  /** Number of pages that another thread reads. */
  #activeFetches = 0;
  #isClosed = false;
  #writeErrors = 0;
  #readErrors = 0;
  #report: (problem: string) => void;
  /** True while the disk's last operation failed. */
  #isFailing = false;

  constructor(options: SwapOptions) {
    const { pageBytes, memoryBytes, diskBytes, directory } = options;
    if (!Number.isInteger(pageBytes) || pageBytes < 1) throw new RangeError(`pages of ${pageBytes} bytes`);
    this.pageBytes = pageBytes;
    this.#memorySlots = new SlotNumbers(Math.floor(memoryBytes / pageBytes));
    this.#maxDiskPages = Math.floor(diskBytes / pageBytes);
    this.#diskSlots = new SlotNumbers(this.#maxDiskPages + 1);
    this.#allocate = options.allocate;
    this.#settle = options.settle ?? (() => undefined);
    this.#settled = options.settled ?? (() => undefined);
    this.#directory = directory;
    this.#openFile = options.openFile ?? openUnnamedFile;
    this.#report = options.report;
    if (!this.#allocate) return;
    while (this.#memory.length < this.#memorySlots.count && this.#addMemory());
    if (this.#maxDiskPages > 0) this.#transitBuffer = this.#memoryOf(pageBytes);
  }

  /** Copies a page into the store. Undefined when memory and disk are full, or the disk refused the page: the caller then keeps it. */
  put(bytes: Uint8Array): SwapTicket | undefined {
    this.#checkSize(bytes);
    return this.#putMemory((into) => this.#copyTo(into, bytes)) ?? this.#putDisk(bytes);
  }

  /**
   * Like `put`, but `read` writes the page straight into its slot in memory. Rethrows errors of `read` and stores nothing then. When
   * `stays` is true, `read` may only queue the copy on the device: the store touches the memory only after `settle`.
   */
  putFrom(read: (into: Uint8Array, stays: boolean) => void): SwapTicket | undefined {
    const ticket = this.#putMemory((into) => read(into, true));
    if (ticket || this.#diskIsFull) return ticket;
    this.#transitBuffer ??= this.#memoryOf(this.pageBytes);
    read(this.#transitBuffer, false);
    return this.#putDisk(this.#transitBuffer);
  }

  /**
   * The memory of a stored page, for copies that the device makes or queues in this turn of the event loop: in a later turn, the page may be on
   * disk. Undefined for a page on disk.
   */
  pageInMemory(ticket: SwapTicket): Uint8Array | undefined {
    const { place, slot } = this.#liveTicketOf(ticket);
    return place === 'memory' ? this.#memory[slot] : undefined;
  }

  /** Copies a page to `into`; the store keeps it, too. @throws SwapFault when the disk lost it; the caller still has to drop the ticket */
  read(ticket: SwapTicket, into: Uint8Array): void {
    this.#checkSize(into);
    const { place, slot, checksum } = this.#liveTicketOf(ticket);
    if (place === 'memory') this.#copyTo(into, this.#memory[slot] as Uint8Array);
    else this.#readDisk(slot, checksum, into);
  }

  /**
   * Reads a page from disk to `into` on another thread. Resolves with false when `into` does not have the page: the caller has dropped the page
   * meanwhile, or the disk failed. Reports no failure: a later `read` does.
   */
  async fetch(ticket: SwapTicket, into: Uint8Array): Promise<boolean> {
    this.#checkSize(into);
    const liveTicket = this.#liveTicketOf(ticket);
    const { place, slot, checksum } = liveTicket;
    if (place === 'memory') throw new Error('the page is in memory');
    this.#activeFetches++;
    try {
      await (this.#file as SlotFile).readAsync(slot, into);
      return this.#liveTickets.has(liveTicket) && crc32(into) === checksum;
    } catch {
      return false;
    } finally {
      this.#activeFetches--;
      this.#closeUnused();
    }
  }

  /** Forgets a page. */
  drop(ticket: SwapTicket): void {
    const liveTicket = this.#liveTicketOf(ticket);
    this.#liveTickets.delete(liveTicket);
    if (this.#inMemory.delete(liveTicket)) {
      this.#memorySlots.give(liveTicket.slot);
      return;
    }
    this.#diskSlots.give(liveTicket.slot);
    void this.#moveToDisk();
  }

  stats(): SwapStats {
    return {
      memoryPages: this.#inMemory.size,
      diskPages: this.#liveTickets.size - this.#inMemory.size,
      capacity: this.#memorySlots.count + this.#maxDiskPages,
      writeErrors: this.#writeErrors,
      readErrors: this.#readErrors,
    };
  }

  /** Throws when the slots taken do not match the tickets. */
  check(): void {
    const { memoryPages, diskPages } = this.stats();
    const [inMemory, onDisk] = [this.#memorySlots.usedCount, this.#diskSlots.usedCount - (this.#isMoving ? 1 : 0)];
    if (inMemory !== memoryPages || onDisk !== diskPages)
      throw new Error(`${inMemory} and ${onDisk} places are taken for ${memoryPages} and ${diskPages} tickets`);
  }

  /** Frees memory and file; no ticket is valid afterwards. */
  close(): void {
    this.#isClosed = true;
    for (const ticket of this.#liveTickets) this.drop(ticket);
    this.#memory.length = 0;
    this.#transitBuffer = undefined;
    this.#closeUnused();
  }

  #putMemory(read: (into: Uint8Array) => void): SwapTicket | undefined {
    const slot = this.#memorySlots.take();
    if (slot === undefined) return undefined;
    try {
      if (slot === this.#memory.length) this.#addMemory();
      read(this.#memory[slot] as Uint8Array);
    } catch (error) {
      this.#memorySlots.give(slot);
      throw error;
    }
    const ticket: Ticket = { place: 'memory', slot, checksum: 0 };
    this.#liveTickets.add(ticket);
    this.#inMemory.add(ticket);
    void this.#moveToDisk();
    return ticket;
  }

  /** Allocates memory for the next slots: `SlotNumbers` hands out unused slots in order. @returns false when the memory is not from `allocate` */
  #addMemory(): boolean {
    const { pageBytes } = this;
    const remainingSlots = this.#memorySlots.count - this.#memory.length;
    const pieceSlots = Math.min(remainingSlots, Math.max(1, Math.floor(PIECE_BYTES / pageBytes)));
    const allocated = this.#allocate?.(pieceSlots * pageBytes);
    const piece = allocated ?? new Uint8Array(pieceSlots * pageBytes);
    for (let offset = 0; offset < piece.length; offset += pageBytes)
      this.#memory.push(piece.subarray(offset, offset + pageBytes));
    return allocated !== undefined;
  }

  /** Moves the oldest pages in memory to disk until enough of the memory is free. */
  async #moveToDisk(): Promise<void> {
    if (this.#isMoving) return;
    try {
      for (let page = this.#nextToMove(); page; page = this.#nextToMove()) await this.#move(page);
    } catch (cause) {
      // The page stays in memory. The next `put`, or `drop` of a page on disk, tries again.
      this.#noteWriteError(cause);
    }
  }

  #nextToMove(): Ticket | undefined {
    const freeSlots = this.#memorySlots.count - this.#inMemory.size;
    if (this.#isClosed || this.#diskIsFull || freeSlots >= this.#memorySlots.count * FREE_PART) return undefined;
    const [oldest] = this.#inMemory;
    return oldest;
  }

  async #move(ticket: Ticket): Promise<void> {
    const slot = this.#diskSlots.take() as number;
    let isMoved = false;
    this.#isMoving = true;
    try {
      await this.#settled();
      const bytes = this.#memory[ticket.slot];
      if (!bytes || !this.#inMemory.has(ticket)) return;
      const checksum = crc32(bytes);
      await this.#ensureFile().writeAsync(slot, bytes);
      this.#isFailing = false;
      // During the write, the caller may have dropped the page, or put another one into the last place on disk.
      if (!this.#inMemory.has(ticket) || this.#diskIsFull) return;
      this.#inMemory.delete(ticket);
      this.#memorySlots.give(ticket.slot);
      Object.assign(ticket, { place: 'disk', slot, checksum } satisfies Ticket);
      isMoved = true;
    } finally {
      this.#isMoving = false;
      if (!isMoved) this.#diskSlots.give(slot);
      this.#closeUnused();
    }
  }

  get #diskIsFull(): boolean {
    return this.#liveTickets.size - this.#inMemory.size >= this.#maxDiskPages;
  }

  #ensureFile(): SlotFile {
    this.#file ??= this.#openFile(this.#directory, this.pageBytes);
    return this.#file;
  }

  /** Closes the file of a closed store, but not while a thread uses it: another file could then get its descriptor. */
  #closeUnused(): void {
    if (!this.#isClosed || this.#isMoving || this.#activeFetches > 0) return;
    this.#file?.close();
    this.#file = undefined;
  }

  #copyTo(into: Uint8Array, from: Uint8Array): void {
    this.#settle();
    into.set(from);
  }

  #memoryOf(bytes: number): Uint8Array {
    return this.#allocate?.(bytes) ?? new Uint8Array(bytes);
  }

  #putDisk(bytes: Uint8Array): SwapTicket | undefined {
    const slot = this.#diskIsFull ? undefined : this.#diskSlots.take();
    if (slot === undefined) return undefined;
    try {
      this.#ensureFile().write(slot, bytes);
    } catch (cause) {
      this.#diskSlots.give(slot);
      this.#noteWriteError(cause);
      return undefined;
    }
    this.#isFailing = false;
    const ticket: Ticket = { place: 'disk', slot, checksum: crc32(bytes) };
    this.#liveTickets.add(ticket);
    return ticket;
  }

  #readDisk(slot: number, checksum: number, into: Uint8Array): void {
    let problem: string | undefined;
    let publicText: string | undefined;
    try {
      (this.#file as SlotFile).read(slot, into);
      if (crc32(into) !== checksum) problem = 'its checksum does not match';
    } catch (cause) {
      problem = messageOf(cause);
      publicText = textForTenant(cause);
    }
    if (problem === undefined) {
      this.#isFailing = false;
      return;
    }
    this.#readErrors++;
    this.#reportFailure(`a page cannot be read back: ${problem}`);
    throw new SwapFault(`a page cannot be read back from swap: ${publicText ?? problem}`);
  }

  #noteWriteError(cause: unknown): void {
    this.#writeErrors++;
    this.#reportFailure(`a page cannot be written: ${messageOf(cause)}`);
  }

  #reportFailure(problem: string): void {
    if (!this.#isFailing) this.#report(problem);
    this.#isFailing = true;
  }

  #liveTicketOf(ticket: SwapTicket): Ticket {
    if (!this.#liveTickets.has(ticket)) throw new Error('this page is not in swap: its ticket was spent');
    return ticket as Ticket;
  }

  #checkSize(bytes: Uint8Array): void {
    if (bytes.length !== this.pageBytes) throw new RangeError(`${bytes.length} bytes for a page of ${this.pageBytes}`);
  }
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** Numbers 0 to `count - 1`. Hands out the most recently returned one first; when none is returned, the lowest unused one. */
class SlotNumbers {
  readonly count: number;
  #nextSlot = 0;
  #free: number[] = [];

  constructor(count: number) {
    this.count = count;
  }

  get usedCount(): number {
    return this.#nextSlot - this.#free.length;
  }

  take(): number | undefined {
    return this.#free.pop() ?? (this.#nextSlot < this.count ? this.#nextSlot++ : undefined);
  }

  give(slot: number): void {
    this.#free.push(slot);
  }
}

/** A file of equal slots, addressed by number. Every method may throw disk errors. */
export interface SlotFile {
  write(slot: number, bytes: Uint8Array): void;
  /** As `write`, on another thread. `close` must not be called meanwhile. */
  writeAsync(slot: number, bytes: Uint8Array): Promise<void>;
  read(slot: number, into: Uint8Array): void;
  /** As `read`, on another thread. `close` must not be called meanwhile. */
  readAsync(slot: number, into: Uint8Array): Promise<void>;
  close(): void;
}

/**
 * Makes an unnamed file in `directory`: no other process can open it, and its room is freed on close or at this process's end.
 * @throws file system errors
 */
export function openUnnamedFile(directory: string, slotBytes: number): SlotFile {
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `swap-${randomUUID()}`);
  const fd = openSync(path, 'wx+', 0o600);
  try {
    rmSync(path);
  } catch (cause) {
    closeSync(fd);
    throw cause;
  }
  return slotFile(fd, slotBytes);
}

const readPart = promisify(read);
const writePart = promisify(write);

/** The slots of an open file; closing it closes `fd`. */
export function slotFile(fd: number, slotBytes: number): SlotFile {
  return {
    write(slot, bytes) {
      for (let done = 0; done < slotBytes; ) {
        const written = writeSync(fd, bytes, done, slotBytes - done, slot * slotBytes + done);
        done += checkWritten(written);
      }
    },
    async writeAsync(slot, bytes) {
      for (let done = 0; done < slotBytes; ) {
        const { bytesWritten } = await writePart(fd, bytes, done, slotBytes - done, slot * slotBytes + done);
        done += checkWritten(bytesWritten);
      }
    },
    read(slot, into) {
      for (let done = 0; done < slotBytes; ) {
        const bytes = readSync(fd, into, done, slotBytes - done, slot * slotBytes + done);
        done += checkRead(bytes, done, slotBytes);
      }
    },
    async readAsync(slot, into) {
      for (let done = 0; done < slotBytes; ) {
        const { bytesRead } = await readPart(fd, into, done, slotBytes - done, slot * slotBytes + done);
        done += checkRead(bytesRead, done, slotBytes);
      }
    },
    close: () => closeSync(fd),
  };
}

/** @throws Error at the end of the file */
function checkRead(bytes: number, done: number, slotBytes: number): number {
  if (bytes === 0) throw new Error(`the file ends after ${done} of ${slotBytes} bytes`);
  return bytes;
}

/** @throws Error for a disk that writes no bytes and reports no error, which would hang the host */
function checkWritten(bytes: number): number {
  if (bytes === 0) throw new Error('the disk took no bytes');
  return bytes;
}
