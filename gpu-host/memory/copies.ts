import { Shares } from '#scheduler/policies/shares.ts';
import { fault } from './fault.ts';
import type { PageRecords } from './page-records.ts';

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
