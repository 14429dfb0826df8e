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
  /** Copies out the keys and values of the page at `index`, on the device or in swap. */
  readPage(snapshot: S, index: number, into: Uint8Array): void;
}

/** A snapshot that is on disk only. Valid only during the restore that receives it. */
export interface StoredSnapshot {
  /** Tenant that owns the snapshot. */
  readonly tenant: string;
  readonly pages: readonly StoredPage[];
  readonly tokens: number;
  readonly nextPosition: number;
  /** Keys and values of the page at `index`, checked. @throws CallFault `internal` when the file is damaged; the restore must then give back what it made. */
  readPage(index: number, into: Uint8Array): void;
}

export interface StoredPage {
  readonly filled: number;
  readonly masked: number;
  /** One per slot; entries of empty slots are undefined. */
  readonly positions: Uint32Array;
}

/** Makes pages of a stored snapshot, each held once for the registry. A restore that throws must leave none behind. */
export type Restore<S extends Snapshot> = (stored: StoredSnapshot) => S;
