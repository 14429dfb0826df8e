/** Sizes at which an index changes its method; tests use small ones. */
export interface Sizes {
  /** Maximum entries of the tail: the newest ones, which a query compares one by one. When there are more, the oldest of them go to the graph. */
  readonly tail: number;
  /** When one condition of its filter, other than `not-equal`, leaves at most this many entries, a query compares each of them. */
  readonly maxCompared: number;
  /**
   * A query that finds too few matches among this many candidates of the graph, because of its filter or of deleted entries, compares all
   * entries instead.
   */
  readonly width: number;
  /** Maximum entries that a query by words ranks; ranking one takes about two microseconds. */
  readonly maxWorded: number;
}

export const SIZES: Sizes = { tail: 256, maxCompared: 1000, width: 1024, maxWorded: 50_000 };

/** Rows read in one piece of work. A row takes about 5 µs; an addition to the graph takes about 0.5 ms and is a piece of its own. */
export const ROWS_AT_ONCE = 64;
/** Texts ranked in one piece of work. A text of 64 KiB that repeats a word of the query takes about a millisecond. */
export const WORDED_AT_ONCE = 8;
/** The graph rounds vectors. So a query takes this many candidates per wanted match, at least `LEAST_CANDIDATES`, and scores them exactly. */
export const CANDIDATES = 2;
export const LEAST_CANDIDATES = 16;
/** A query by vector and text fuses this many entries of each ranking for each wanted match, and at least `LEAST_FUSED`. */
export const FUSED_RANKS = 4;
export const LEAST_FUSED = 64;
/** The graph is saved when more than this part of its vectors, and more than `SAVED_LEAST`, are new. */
export const SAVED_PART = 0.1;
export const SAVED_LEAST = 1000;
/** The graph is made again when more than this part of its keys, and more than `STALE_LEAST`, belong to deleted entries. */
export const STALE_PART = 0.25;
export const STALE_LEAST = 1000;
/**
 * Upserts wait for maintenance while an index is past one of three bounds. The first bound: more than this part of the graph's keys, and more than
 * `CROWDED_LEAST` keys, belong to deleted entries.
 */
export const CROWDED_PART = 0.5;
export const CROWDED_LEAST = 2 * STALE_LEAST;
/** The second bound: the tail has more than this many times `Sizes.tail` entries. */
export const CROWDED_TAILS = 8;
/** The third bound: more than this many texts have words that must still be indexed or removed. */
export const CROWDED_WORDS = 1024;

/** Work in short pieces: the process runs other tenants' pieces between them. */
export type Pieces<T> = Generator<void, T, void>;

/** Work that cannot be cut. */
// biome-ignore lint/correctness/useYield: it is one piece.
export function* once<T>(work: () => T): Pieces<T> {
  return work();
}

/** Runs all pieces without a pause: the thread serves no other tenant meanwhile. Rejects with the work's error. */
export async function runToEnd<T>(work: Pieces<T>): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value as T;
  }
}
