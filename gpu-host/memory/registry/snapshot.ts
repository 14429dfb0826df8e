/** Pages frozen at one moment, as memory keeps them: nobody writes a page that has another holder. */
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

/** What the registry needs of memory. All of it happens between device steps, except that `release` may be called at any time. */
export interface SnapshotMemory<S extends Snapshot> {
  /** The registry holds each page once more. */
  retain(snapshot: S): void;
  /** The registry gives up what it retained (or what a restore made for it). */
  release(snapshot: S): void;
  /** Copies out keys and values of the page at `index`, wherever they are. */
  readPage(snapshot: S, index: number, into: Uint8Array): void;
}

/** A snapshot that is on disk only. Good while the restore that was handed it runs. */
export interface StoredSnapshot {
  /** Whose it is. */
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
  /** One per slot; those of empty slots mean nothing. */
  readonly positions: Uint32Array;
}

/** Makes pages of a stored snapshot, each held once for the registry. May throw; nothing must be left then. */
export type Restore<S extends Snapshot> = (stored: StoredSnapshot) => S;
