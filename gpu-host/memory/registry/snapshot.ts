import type { TransferBuffer } from '../transfers.ts';

/** Pages frozen at one moment. Writers copy a page that has another holder, so these never change. */
export interface Snapshot {
  readonly pages: readonly SnapshotPage[];
  /** Filled slots. */
  readonly tokens: number;
  /** One past the largest position. */
  readonly nextPosition: number;
}

export interface SnapshotPage {
  readonly page: { readonly filled: number; readonly positions: Uint32Array };
  /** Bit `s` set hides slot `s`. */
  readonly masked: number;
}

/** The registry's view of memory. Calls happen between device steps, except that `release` may come at any time. */
export interface SnapshotMemory<S extends Snapshot> {
  /** Adds one reference of the registry to each page. */
  retain(snapshot: S): void;
  /** Drops the references that `retain`, or a restore, made for the registry. */
  release(snapshot: S): void;
  /** Counts a held snapshot as used now. */
  used(snapshot: S): void;
  /** Memory for `readPage` and `Restoration.fill`. */
  takeBuffer(bytes: number): TransferBuffer;
  /** Copies out the keys and values of the page at `index`, on the device or in swap. They are in `into` once `settled` resolves. */
  readPage(snapshot: S, index: number, into: Uint8Array): void;
  /** Resolves when the copies from and to buffers that were queued before have ended; undefined when none can be under way. */
  settled(): Promise<void> | undefined;
}

/** A page as a file holds it, without its keys and values. */
export interface StoredPage {
  readonly filled: number;
  readonly masked: number;
  /** One per slot; entries of empty slots are undefined. */
  readonly positions: Uint32Array;
}

/** Turns on the device's memory, which one inferlet pays for. */
export interface DeviceTurns {
  /**
   * Calls `next` between two device steps, again and again until it returns false. Each call of `next` is short; other steps go in between.
   * Rejects with what `next` throws.
   */
  between(next: () => boolean): Promise<void>;
}

/** The inferlet that brings a snapshot back from disk. */
export interface Requester<S extends Snapshot> extends DeviceTurns {
  readonly tenant: string;
  /** True once the inferlet has ended: its pages are gone, or go before the next step. */
  readonly hasEnded: boolean;
  /** Calls `tell` when the inferlet ends. Returns a function that cancels this. */
  whenEnded(tell: () => void): () => void;
  /** Makes room for `pages` pages of a snapshot that belongs to `owner`, between device steps. @throws CallFault */
  restore(owner: string, pages: number): Restoration<S>;
}

/** Pages of a snapshot on their way from disk. They count as the requester's, and go when it ends. Only `end` may come during a step. */
export interface Restoration<S extends Snapshot> {
  /** @param bytes the keys and values in a transfer buffer, which must not change before `SnapshotMemory.settled` resolves */
  fill(index: number, page: StoredPage, bytes: Uint8Array): void;
  /** The snapshot of the filled pages, held once for the registry. */
  finish(tokens: number, nextPosition: number): S;
  /** Ends the requester's hold: unless the registry or a mapping holds the pages, they are given back. */
  end(): void;
}

/** Runs `work` once between two device steps. */
export async function onceBetween<T>(turns: DeviceTurns, work: () => T): Promise<T> {
  const results: T[] = [];
  await turns.between(() => {
    results.push(work());
    return false;
  });
  return results[0] as T;
}
