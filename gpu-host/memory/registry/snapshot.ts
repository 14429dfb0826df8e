import type { TransferBuffer } from '../transfers.ts';

/** Pages frozen at one moment. They never change: an inferlet that wants to write to a page with another holder gets a copy of the page. */
export interface Snapshot {
  readonly pages: readonly SnapshotPage[];
  /** Filled slots. */
  readonly tokens: number;
  /** One past the largest position. */
  readonly nextPosition: number;
}

export interface SnapshotPage {
  readonly page: { readonly filled: number; readonly positions: Uint32Array };
  /** A set bit `s` hides slot `s`. */
  readonly masked: number;
}

/** Memory as the registry sees it. The registry calls `release` at any time, and all other methods only between device steps. */
export interface SnapshotMemory<S extends Snapshot> {
  /** Adds one reference of the registry to each page. */
  retain(snapshot: S): void;
  /** Drops the references that `retain`, or a restore, made for the registry. */
  release(snapshot: S): void;
  /** Counts a held snapshot as used now. */
  used(snapshot: S): void;
  /** Takes a buffer for the bytes of `readPage` and `Restoration.fill`. */
  takeBuffer(bytes: number): TransferBuffer;
  /** Copies the keys and values of the page at `index`, from the device or from swap. They are in `into` once `settled` resolves. */
  readPage(snapshot: S, index: number, into: Uint8Array): void;
  /** Resolves when all earlier copies from and to buffers have ended; undefined when no copy can be under way. */
  settled(): Promise<void> | undefined;
}

/** A page as a file holds it, without its keys and values. */
export interface StoredPage {
  readonly filled: number;
  readonly masked: number;
  /** One per slot; those of empty slots have no meaning. */
  readonly positions: Uint32Array;
}

/** Gives one inferlet turns between device steps, when pages may change. The inferlet pays for the device time of its turns. */
export interface DeviceTurns {
  /**
   * Calls `next` between device steps until it returns false. Each call of `next` is short, and device steps may run between two calls.
   * Rejects with what `next` throws.
   */
  between(next: () => boolean): Promise<void>;
}

/** The inferlet that brings a snapshot back from disk. */
export interface Requester<S extends Snapshot> extends DeviceTurns {
  readonly tenant: string;
  /** True once the inferlet has ended: its pages are free, or will be before the next device step. */
  readonly hasEnded: boolean;
  /** Calls `tell` when the inferlet ends. Returns a function that unregisters `tell`. */
  whenEnded(tell: () => void): () => void;
  /** Makes room for `pages` pages of a snapshot that belongs to `owner`, between device steps. @throws CallFault */
  restore(owner: string, pages: number): Restoration<S>;
}

/** Pages on their way from disk. They count as pages of the requester, and are freed when it ends. Only `end` may be called during a device step. */
export interface Restoration<S extends Snapshot> {
  /** Fills the page at `index`. @param bytes its keys and values in a transfer buffer, unchanged until `SnapshotMemory.settled` resolves */
  fill(index: number, page: StoredPage, bytes: Uint8Array): void;
  /** Makes the snapshot of the filled pages, and adds one reference of the registry to each page, as `SnapshotMemory.retain` does. */
  finish(tokens: number, nextPosition: number): S;
  /** Ends the requester's hold on the pages. Pages that neither the registry nor an address holds are freed. */
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
