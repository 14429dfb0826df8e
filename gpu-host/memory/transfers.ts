import { Shares } from '#scheduler/policies/shares.ts';

import { fault } from './fault.ts';
import type { PageRecords } from './page-records.ts';

/** Bytes of a buffer in pinned memory; more when a page needs more. */
const BUFFER_BYTES = 4 * 1024 * 1024;
/** Upper bound of the bytes that precede a page's keys and values in its record for another host. */
const RECORD_HEAD_BYTES = 4096;
/** Further transfers at the same time use ordinary memory, and the thread waits for their copies. */
const MAX_PINNED_BUFFERS = 8;

/** Memory for pages on their way between the device and a file or another host. */
export interface TransferBuffer {
  readonly bytes: Uint8Array;
  /** Gives the memory back once the queued copies that use it have ended. */
  release(): void;
}

/** The buffers of one device. Copies from and to them leave the thread free, where the device can queue copies. */
export class TransferBuffers {
  readonly #device: PageDevice;
  readonly #size: number;
  /** Pinned memory that no transfer uses. */
  readonly #idle: Uint8Array[] = [];
  #pinnedCount = 0;

  constructor(device: PageDevice) {
    this.#device = device;
    this.#size = Math.max(BUFFER_BYTES, device.pageBytes + RECORD_HEAD_BYTES);
  }

  /** Number of pages of `bytes` each that one pinned buffer holds; at least 1. */
  countOf(bytes: number): number {
    return Math.max(1, Math.floor(this.#size / bytes));
  }

  take(bytes: number): TransferBuffer {
    const memory = bytes > this.#size ? undefined : (this.#idle.pop() ?? this.#allocate());
    if (!memory) return { bytes: new Uint8Array(bytes), release: () => undefined };
    let isTaken = true;
    return {
      bytes: memory.subarray(0, bytes),
      release: () => {
        if (!isTaken) return;
        isTaken = false;
        const reuse = () => void this.#idle.push(memory);
        const settled = this.settled();
        // After a failure of the device, no copy can be trusted to have ended.
        if (settled) settled.then(reuse, () => undefined);
        else reuse();
      },
    };
  }

  /** Resolves when the copies that were queued before have ended; undefined where the device queues none. */
  settled(): Promise<void> | undefined {
    return this.#device.pagesSettled?.();
  }

  #allocate(): Uint8Array | undefined {
    if (this.#pinnedCount === MAX_PINNED_BUFFERS) return undefined;
    const memory = this.#device.allocatePinned?.(this.#size);
    if (memory) this.#pinnedCount++;
    return memory;
  }
}

/** A whole copy of pages of another host. */
export interface Copy {
  readonly records: PageRecords;
  readonly bytes: number;
}

/** Time without a call after which a transfer from or to another host counts as given up, ms. */
const IDLE_MS = 15_000;

interface KeptCopy {
  readonly tenant: string;
  readonly copy: Copy;
}

/**
 * Copies of pages that other hosts own, in the memory of this process: copies that are arriving, and whole ones kept for the next import. When an
 * arriving copy needs room, kept copies are dropped, least recently used first. A copy is found only by its tenant and its version together, so a
 * tenant learns nothing about copies of other tenants.
 */
export class Copies {
  readonly #shares: Shares;
  readonly #maxBytes: number;
  /** Kept copies by tenant and version, least recently used first. */
  readonly #keptCopies = new Map<string, KeptCopy>();

  /** Milliseconds without a call after which a copy that arrives, or is sent, is dropped. */
  readonly idleMs: number;

  /** @param maxBytes bytes of all copies; a tenant alone may have half */
  constructor(maxBytes: number, idleMs = IDLE_MS) {
    this.#maxBytes = maxBytes;
    this.idleMs = idleMs;
    this.#shares = new Shares(maxBytes);
  }

  /** Bytes of all copies, those on their way included. */
  get bytes(): number {
    return this.#shares.total;
  }

  /** Bytes reserved for arriving copies. */
  get arriving(): number {
    let arrivingBytes = this.bytes;
    for (const { copy } of this.#keptCopies.values()) arrivingBytes -= copy.bytes;
    return arrivingBytes;
  }

  /**
   * Reserves room for a copy that begins to arrive. The caller must call `keep` with the whole copy, or `leave`.
   * @throws CallFault `limit-exceeded` when no copy may be that large, `unavailable` when other arriving copies use the
   * room
   */
  enter(tenant: string, bytes: number): void {
    if (bytes > this.#maxBytes / 2) {
      throw fault('limit-exceeded', `${bytes} bytes of another GPU host; at most ${this.#maxBytes / 2} can be fetched`);
    }
    while (!this.#shares.fits(tenant, bytes)) {
      if (this.#dropOne(tenant)) continue;
      throw fault('unavailable', 'too much is being fetched from other GPU hosts; try again when it has come');
    }
    this.#shares.add(tenant, bytes);
  }

  /** Gives back the room of a copy that did not arrive. */
  leave(tenant: string, bytes: number): void {
    this.#shares.leave(tenant, bytes);
  }

  /** Keeps a copy that has arrived, in its reserved room, until other arriving copies need the room. */
  keep(tenant: string, version: string, copy: Copy): void {
    const key = keyOf(tenant, version);
    this.#drop(key);
    this.#keptCopies.set(key, { tenant, copy });
  }

  /** Finds the copy of a version, and counts it as used now. */
  find(tenant: string, version: string): Copy | undefined {
    const key = keyOf(tenant, version);
    const keptCopy = this.#keptCopies.get(key);
    if (!keptCopy) return undefined;
    this.#keptCopies.delete(key);
    this.#keptCopies.set(key, keptCopy);
    return keptCopy.copy;
  }

  /** Drops the copy of a version. */
  drop(tenant: string, version: string): void {
    this.#drop(keyOf(tenant, version));
  }

  /** Drops the copy that was used least recently, one of the tenant's own if it has any. False when none is kept. */
  #dropOne(tenant: string): boolean {
    let oldest: string | undefined;
    for (const [key, keptCopy] of this.#keptCopies) {
      oldest ??= key;
      if (keptCopy.tenant !== tenant) continue;
      oldest = key;
      break;
    }
    return oldest !== undefined && this.#drop(oldest);
  }

  #drop(key: string): boolean {
    const keptCopy = this.#keptCopies.get(key);
    if (!keptCopy) return false;
    this.#keptCopies.delete(key);
    this.#shares.leave(keptCopy.tenant, keptCopy.copy.bytes);
    return true;
  }
}

function keyOf(tenant: string, version: string): string {
  return JSON.stringify([tenant, version]);
}

/** The device's store of keys and values, by frame. Every `Backend` implements it. */
export interface PageDevice {
  /** Bytes of one page as `readPage` gives them. */
  readonly pageBytes: number;
  /**
   * Copies the i-th source slot to the i-th destination slot, and rotates its key by the i-th shift, in positions. Reads all sources before it
   * writes any destination.
   */
  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void;
  readPage(frame: number, into: Uint8Array): void;
  writePage(frame: number, from: Uint8Array): void;
  /**
   * As `readPage`, but returns once the copy is queued; the device executes later calls after it. Until `pagesSettled` resolves, the caller keeps
   * `into`, and only further queued copies may use that memory.
   */
  queueReadPage?(frame: number, into: Uint8Array): void;
  /** As `writePage`, with the terms of `queueReadPage` for `from`. */
  queueWritePage?(frame: number, from: Uint8Array): void;
  /** Resolves when the copies that were queued before the call have ended. The thread stays free. */
  pagesSettled?(): Promise<void>;
  /** Allocates the host memory that the device copies pages from and to fastest. */
  allocatePinned?(bytes: number): Uint8Array | undefined;
}
