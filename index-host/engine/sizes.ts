/** Sizes at which an index changes its ways; tests make them small. */
export interface Sizes {
  /** Vectors that are compared one by one before the graph takes them. */
  readonly tail: number;
  /** Entries that a filter may leave for all of them to be compared. */
  readonly exact: number;
  /** Widest search of the graph for a filter; then all entries are compared. */
  readonly width: number;
  /** Entries with the words of a query that are ranked; each takes about two microseconds. */
  readonly worded: number;
}

export const SIZES: Sizes = { tail: 256, exact: 1000, width: 1024, worded: 50_000 };

/** Rows between two turns of other tenants. A row takes about 5 µs, an addition to the graph about 0.5 ms. */
export const ROWS_AT_ONCE = 64;
/** Texts ranked between two turns. One of 64 KiB that repeats a word of the query takes about a millisecond. */
export const WORDED_AT_ONCE = 8;
/** Candidates compared again with their whole vectors, per match; the graph rounds them. */
export const CANDIDATES = 2;
export const LEAST_CANDIDATES = 16;
/** Of a query by vector and text, the ranks that each list contributes. */
export const FUSED_RANKS = 4;
export const LEAST_FUSED = 64;
/** The graph is written again after this part of it, and at least so many vectors, are new. */
export const SAVED_PART = 0.1;
export const SAVED_LEAST = 1000;
/** The graph is made again when this part of it, and at least so many keys, are of deleted entries. */
export const STALE_PART = 0.25;
export const STALE_LEAST = 1000;
/** From this part on, additions wait until the graph was made again. */
export const CROWDED_PART = 0.5;
export const CROWDED_LEAST = 2 * STALE_LEAST;
export const CROWDED_TAILS = 8;
/** Texts whose words may be left by writes that ended early before further additions wait. */
export const CROWDED_WORDS = 1024;
