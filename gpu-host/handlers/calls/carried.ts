import { createHash } from 'node:crypto';
import type { DeviceMemory } from '../../memory/device-memory.ts';
import { fault } from '../../memory/fault.ts';
import { PageRecords, recordBytes, writeRecord } from '../../memory/page-records.ts';
import { type DeviceTurns, onceBetween, pagesPerBuffer } from '../../memory/registry/stored.ts';
import type { PageSnapshot } from '../../memory/space-snapshot.ts';
import type { Copies, TransferBuffer } from '../../memory/transfers.ts';
import type { PageLayout } from '../../protocol/calls.ts';
import { PIECE_BYTES } from '../../protocol/wire.ts';
import type { ModelSpace } from './space.ts';

/** Maximum transfers in one direction (to other hosts, or from other hosts) that one inferlet has at once on a model. */
const MAX_TRANSFERS = 4;

/** Transfer of frozen pages to another host, which fetches their bytes in order, piece by piece. */
export class Sending {
  readonly bytes: number;
  readonly #snapshot: PageSnapshot;
  readonly #memory: DeviceMemory;
  readonly #layout: PageLayout;
  readonly #hash = createHash('sha256');
  /** Bytes of one page's record (`page-records.ts`). */
  readonly #recordBytes: number;
  /** Number of records that `#records` has room for. */
  readonly #maxRecords: number;
  /** Buffer with the records of the `#pageCount` pages from `#firstPage` on. */
  readonly #records: TransferBuffer;
  #firstPage = 0;
  #pageCount = 0;
  #sentBytes = 0;
  #isReading = false;
  #hasEnded = false;

  constructor(snapshot: PageSnapshot, memory: DeviceMemory, layout: PageLayout) {
    this.#snapshot = snapshot;
    this.#memory = memory;
    this.#layout = layout;
    this.#recordBytes = recordBytes(layout);
    this.#maxRecords = Math.min(snapshot.pages.length, pagesPerBuffer(PIECE_BYTES, this.#recordBytes));
    this.bytes = snapshot.pages.length * this.#recordBytes;
    this.#records = memory.snapshots.takeBuffer(this.#maxRecords * this.#recordBytes);
    memory.snapshots.retain(snapshot);
  }

  /** Returns the next piece; empty when all pieces have been sent. @throws CallFault */
  async next(turns: DeviceTurns): Promise<Uint8Array> {
    if (this.#isReading) throw fault('invalid-argument', 'the piece before is still being read');
    this.#isReading = true;
    try {
      const piece = new Uint8Array(Math.min(PIECE_BYTES, this.bytes - this.#sentBytes));
      for (let copiedBytes = 0; copiedBytes < piece.length; ) {
        const offset = this.#sentBytes + copiedBytes;
        const index = Math.floor(offset / this.#recordBytes);
        if (index >= this.#firstPage + this.#pageCount) await this.#read(index, turns);
        const loaded = this.#records.bytes.subarray(0, this.#pageCount * this.#recordBytes);
        const part = loaded
          .subarray(offset - this.#firstPage * this.#recordBytes)
          .subarray(0, piece.length - copiedBytes);
        piece.set(part, copiedBytes);
        copiedBytes += part.length;
      }
      // Hash the piece in a turn of the inferlet, which then pays for the time.
      if (piece.length > 0) await onceBetween(turns, () => this.#hash.update(piece));
      this.#sentBytes += piece.length;
      return piece;
    } finally {
      this.#isReading = false;
    }
  }

  /** SHA-256 of all pieces sent so far, in hexadecimal digits. */
  checksum(): string {
    return this.#hash.copy().digest('hex');
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#records.release();
    this.#memory.snapshots.release(this.#snapshot);
  }

  /** Reads the records of page `firstPage` and the following ones, as many as there is room for. */
  async #read(firstPage: number, turns: DeviceTurns): Promise<void> {
    const { snapshots } = this.#memory;
    const count = Math.min(this.#maxRecords, this.#snapshot.pages.length - firstPage);
    this.#pageCount = 0;
    let readCount = 0;
    await turns.between(() => {
      this.#checkOpen();
      const frozen = this.#snapshot.pages[firstPage + readCount];
      if (!frozen) throw new RangeError(`page ${firstPage + readCount} of ${this.#snapshot.pages.length}`);
      const { page, masked } = frozen;
      const { filled, positions } = page;
      const record = this.#records.bytes.subarray(readCount * this.#recordBytes, (readCount + 1) * this.#recordBytes);
      const data = writeRecord(record, { filled, masked, positions }, this.#layout);
      snapshots.readPage(this.#snapshot, firstPage + readCount, data);
      return ++readCount < count;
    });
    await snapshots.settled();
    this.#checkOpen();
    this.#firstPage = firstPage;
    this.#pageCount = count;
  }

  /** @throws CallFault `cancelled` */
  #checkOpen(): void {
    if (this.#hasEnded) throw fault('cancelled', 'the sending has ended');
  }
}

/** Transfer of pages from another host: the pieces of the copy arrive in order. */
export class Arrival {
  readonly #tenant: string;
  readonly #version: string;
  readonly #pages: number;
  readonly #layout: PageLayout;
  readonly #bytes: number;
  readonly #copies: Copies;
  readonly #hash = createHash('sha256');
  readonly #pieces: Uint8Array[] = [];
  #receivedBytes = 0;
  #hasEnded = false;

  /** @throws CallFault when there is no room */
  constructor(tenant: string, version: string, pages: number, layout: PageLayout, copies: Copies) {
    this.#tenant = tenant;
    this.#version = version;
    this.#pages = pages;
    this.#layout = layout;
    this.#copies = copies;
    this.#bytes = pages * recordBytes(layout);
    copies.enter(tenant, this.#bytes);
  }

  /** Adds the next piece. @throws CallFault `invalid-argument` when its length is wrong */
  take(piece: Uint8Array): void {
    const expectedLength = Math.min(PIECE_BYTES, this.#bytes - this.#receivedBytes);
    if (expectedLength === 0 || piece.length !== expectedLength) {
      throw fault('invalid-argument', `a piece of ${piece.length} bytes where one of ${expectedLength} is due`);
    }
    this.#hash.update(piece);
    this.#pieces.push(piece);
    this.#receivedBytes += piece.length;
  }

  /** Keeps the copy. @throws CallFault `invalid-argument` when pieces are missing, or `checksum` is not that of the pieces */
  keep(checksum: string): void {
    if (this.#receivedBytes < this.#bytes) {
      throw fault('invalid-argument', `${this.#receivedBytes} of ${this.#bytes} bytes have come`);
    }
    if (this.#hash.digest('hex') !== checksum) {
      throw fault('invalid-argument', 'the checksum of the pages does not match; fetch them again');
    }
    const records = new PageRecords(this.#pages, this.#layout, PIECE_BYTES, this.#pieces);
    this.#hasEnded = true;
    this.#copies.keep(this.#tenant, this.#version, { records, bytes: this.#bytes });
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#copies.leave(this.#tenant, this.#bytes);
  }
}

interface Entry<T> {
  readonly item: T;
  readonly timer: NodeJS.Timeout;
}

/**
 * Transfers of one inferlet on a model in one direction, by number. A transfer ends when it gets no call for `idleMs`, because it holds memory. All
 * transfers end with the inferlet.
 */
class NumberedTransfers<T extends { end(): void }> {
  readonly #itemsName: string;
  readonly #idleMs: number;
  readonly #entries = new Map<number, Entry<T>>();
  #lastNumber = 0;

  constructor(space: ModelSpace, itemsName: string, idleMs: number) {
    this.#itemsName = itemsName;
    this.#idleMs = idleMs;
    space.whenClosed.add(() => {
      for (const number of [...this.#entries.keys()]) this.drop(number);
    });
  }

  /** @throws CallFault `limit-exceeded` when there are too many; what `make` throws */
  add(make: () => T): { readonly number: number; readonly item: T } {
    if (this.#entries.size >= MAX_TRANSFERS) {
      throw fault('limit-exceeded', `an inferlet has at most ${MAX_TRANSFERS} ${this.#itemsName} at once`);
    }
    const item = make();
    const number = ++this.#lastNumber;
    const timer = setTimeout(() => this.drop(number), this.#idleMs).unref();
    this.#entries.set(number, { item, timer });
    return { number, item };
  }

  /** @throws CallFault `not-found` */
  get(number: number): T {
    const entry = this.#entries.get(number);
    if (!entry) throw fault('not-found', `none of the ${this.#itemsName} has the number ${number}; it may have ended`);
    entry.timer.refresh();
    return entry.item;
  }

  drop(number: number): void {
    const entry = this.#entries.get(number);
    if (!entry) return;
    this.#entries.delete(number);
    clearTimeout(entry.timer);
    entry.item.end();
  }
}

const sendingsBySpace = new WeakMap<ModelSpace, NumberedTransfers<Sending>>();
const arrivalsBySpace = new WeakMap<ModelSpace, NumberedTransfers<Arrival>>();

export function sendingsOf(space: ModelSpace, { idleMs }: Copies): NumberedTransfers<Sending> {
  return transfersOf(sendingsBySpace, space, 'sendings', idleMs);
}

export function arrivalsOf(space: ModelSpace, { idleMs }: Copies): NumberedTransfers<Arrival> {
  return transfersOf(arrivalsBySpace, space, 'copies on their way', idleMs);
}

function transfersOf<T extends { end(): void }>(
  transfersBySpace: WeakMap<ModelSpace, NumberedTransfers<T>>,
  space: ModelSpace,
  itemsName: string,
  idleMs: number,
): NumberedTransfers<T> {
  const transfers = transfersBySpace.get(space) ?? new NumberedTransfers<T>(space, itemsName, idleMs);
  transfersBySpace.set(space, transfers);
  return transfers;
}
