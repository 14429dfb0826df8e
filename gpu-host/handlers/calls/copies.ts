import { createHash } from 'node:crypto';
import type { KeyVisitor } from '../../batcher/call.ts';
import type { DeviceMemory } from '../../memory/device-memory.ts';
import { fault } from '../../memory/fault.ts';
import { type Extent, NO_EXTENT, PageRecords, recordBytes, withPage, writeRecord } from '../../memory/page-records.ts';
import type { PageSnapshot } from '../../memory/pool.ts';
import type { Maker } from '../../memory/registry/entry.ts';
import {
  checkOpen,
  type DeviceTurns,
  fillPages,
  onceBetween,
  type PageSource,
  pagesPerBuffer,
  type Requester,
  type Restoration,
} from '../../memory/registry/stored.ts';
import type { Copies, Copy, TransferBuffer } from '../../memory/transfers.ts';
import type { PageLayout } from '../../protocol/calls.ts';
import type { Operation } from '../../protocol/operations.ts';
import { PIECE_BYTES } from '../../protocol/wire.ts';
import { type HostQueue, type ModelSpace, pageKey } from './call.ts';
import { checkMappable, type NamedPages, NamedPagesCall } from './exports.ts';

type SendOperation = Operation<'name-version' | 'send-begin' | 'send-piece' | 'send-end'>;
type CopyOperation = Operation<'copy-begin' | 'copy-piece' | 'copy-end' | 'copy-drop' | 'copy-map'>;

/** Maximum characters of a version, which names the pages of one save. */
const MAX_VERSION_LENGTH = 64;

/** A call about pages that go to or come from another host. */
abstract class CarryCall extends NamedPagesCall {
  /** The model that makes this host's pages. @throws CallFault `unsupported` on a host without a directory for persistent pages */
  protected get maker(): Maker {
    const { maker } = this.names;
    if (maker) return maker;
    throw fault('unsupported', 'this GPU host has no directory for persistent pages, so it exchanges none with others');
  }
}

/** The calls by which a runtime reads the tenant's pages for another host. */
export class SendCall extends CarryCall {
  readonly #operation: SendOperation;

  constructor(queue: HostQueue, id: number, operation: SendOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override execute(): undefined | Promise<void> {
    const { space } = this.hostQueue;
    const operation = this.#operation;
    switch (operation.op) {
      case 'name-version':
        this.reply(operation.op, { version: this.#version(operation) });
        return undefined;
      case 'send-begin': {
        const { fingerprint, pageSize, pageBytes } = this.maker;
        const { number, item } = sendingsOf(space, this.names.copies).add(
          () => new Sending(space.pages.snapshot(operation.pages), this.names.memory, { pageSize, pageBytes }),
        );
        const pages = operation.pages.length;
        const layout = { fingerprint: fingerprint.hash, pageSize, pageBytes };
        this.reply(operation.op, { sending: number, pages, bytes: item.bytes, ...layout });
        return undefined;
      }
      case 'send-piece':
        return this.#send(sendingsOf(space, this.names.copies).get(operation.sending));
      case 'send-end': {
        const checksum = sendingsOf(space, this.names.copies).get(operation.sending).checksum();
        sendingsOf(space, this.names.copies).drop(operation.sending);
        this.reply(operation.op, checksum);
        return undefined;
      }
    }
  }

  async #send(sending: Sending): Promise<void> {
    const piece = await sending.next(this.requester);
    this.reply('send-piece', piece);
  }

  #version({ file, name, functionName }: Operation<'name-version'>): string {
    const { owner, holder } = this.hostQueue.space;
    const { tenant } = owner;
    const { registry } = this.names;
    return file
      ? registry.fileVersion({ tenant, inferlet: holder, functionName }, name)
      : registry.exportVersion(tenant, name);
  }

  override visitKeys(visit: KeyVisitor): void {
    if (this.#operation.op === 'send-begin') for (const page of this.#operation.pages) visit(pageKey(page), 'read');
  }
}

/** The calls by which a runtime writes pages of another host into a copy on this host, and maps the pages of the copy. */
export class CopyCall extends CarryCall {
  readonly #operation: CopyOperation;

  constructor(queue: HostQueue, id: number, operation: CopyOperation, names: NamedPages) {
    super(queue, id, names);
    this.#operation = operation;
  }

  override get claims(): boolean {
    return this.#operation.op === 'copy-map';
  }

  override execute(): undefined | Promise<void> {
    const { space } = this.hostQueue;
    const arrivals = arrivalsOf(space, this.names.copies);
    const operation = this.#operation;
    switch (operation.op) {
      case 'copy-begin':
        this.reply(operation.op, this.#begin(operation));
        return undefined;
      case 'copy-piece':
        arrivals.get(operation.copy).take(operation.bytes);
        this.replyDone(operation.op);
        return undefined;
      case 'copy-end':
        try {
          arrivals.get(operation.copy).keep(operation.checksum);
        } finally {
          arrivals.drop(operation.copy);
        }
        this.replyDone(operation.op);
        return undefined;
      case 'copy-drop':
        arrivals.drop(operation.copy);
        this.replyDone(operation.op);
        return undefined;
      case 'copy-map':
        return this.#map(operation);
    }
  }

  #begin({ version, pages, fingerprint, pageSize, pageBytes }: Operation<'copy-begin'>): number {
    const { maker } = this;
    if (fingerprint !== maker.fingerprint.hash || pageSize !== maker.pageSize || pageBytes !== maker.pageBytes) {
      const theirModel = `fingerprint ${fingerprint.slice(0, 12)}, ${pageBytes} bytes a page of ${pageSize}`;
      const ourModel = `${maker.fingerprint.name}, fingerprint ${maker.fingerprint.hash.slice(0, 12)}, ${maker.pageBytes} bytes a page of ${maker.pageSize}`;
      throw fault(
        'invalid-argument',
        `another model made these pages on another GPU host: ${theirModel}; this is ${ourModel}. Serve the same model with the same settings on all GPU hosts`,
      );
    }
    if (version.length === 0 || version.length > MAX_VERSION_LENGTH) {
      throw fault('invalid-argument', `a version has 1 to ${MAX_VERSION_LENGTH} characters`);
    }
    checkMappable(pages);
    const { space } = this.hostQueue;
    const layout = { pageSize, pageBytes };
    return arrivalsOf(space, this.names.copies).add(
      () => new Arrival(space.owner.tenant, version, pages, layout, this.names.copies),
    ).number;
  }

  #map(operation: Operation<'copy-map'>): Promise<void> {
    const { version } = operation;
    const copy = this.names.copies.find(this.hostQueue.space.owner.tenant, version);
    if (!copy) throw fault('not-found', 'this GPU host keeps no copy of this version');
    const { requester } = this;
    const restoration = requester.restore(requester.tenant, copy.records.pages);
    return this.#fill(operation, copy, requester, restoration);
  }

  /**
   * Returns `extent`. If it is the reason why a page does not fit the layout instead, drops the copy.
   * @throws CallFault `invalid-argument` with that reason
   */
  #checked(extent: Extent | string, version: string): Extent {
    if (typeof extent !== 'string') return extent;
    this.names.copies.drop(this.hostQueue.space.owner.tenant, version);
    throw fault('invalid-argument', `the other GPU host sent no pages: ${extent}`);
  }

  async #fill(
    operation: Operation<'copy-map'>,
    { records }: Copy,
    requester: Requester<PageSnapshot>,
    restoration: Restoration<PageSnapshot>,
  ): Promise<void> {
    try {
      const { snapshots } = this.names.memory;
      const { layout } = records;
      let extent = NO_EXTENT;
      const source: PageSource = {
        pages: records.pages,
        pageBytes: layout.pageBytes,
        pageAt: (index) => {
          const page = records.pageAt(index);
          extent = this.#checked(withPage(extent, page, layout), operation.version);
          return page;
        },
        readPages: (from, into) => records.readPages(from, into),
      };
      await fillPages(source, restoration, requester, { memory: snapshots, bufferBytes: PIECE_BYTES });
      await onceBetween(requester, () => {
        checkOpen(requester);
        const snapshot = restoration.finish(extent.tokens, extent.nextPosition);
        try {
          this.map(operation, snapshot);
        } finally {
          restoration.end();
          snapshots.release(snapshot);
        }
      });
    } finally {
      restoration.end();
    }
  }
}

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
