/** Time constant of the average: the weight of freed pages falls to a third in this time. */
const DECAY_MS = 10_000;
/** Minimum of `retryAfterMs`: a client that tries again sooner would meet the same pressure. */
const SHORTEST_MS = 1000;
/** Maximum of `retryAfterMs`: a client that would have to wait longer should decide for itself when to try again. */
const LONGEST_MS = 60_000;

/**
 * Recent rate at which pages of one model came free, as an exponentially decaying average. Counts pages that inferlets gave back or left
 * behind, except pages of inferlets that the host ended to make room. Pure: callers pass the time.
 */
export class PageTurnover {
  /** Pages, weighted by how long ago they came free. */
  #recentPages = 0;
  #atMs = 0;

  freed(pages: number, nowMs: number): void {
    this.#recentPages = this.#recentAt(nowMs) + pages;
    this.#atMs = nowMs;
  }

  /** Expected time until `pages` have come free, in whole milliseconds: 1 to 60 s, and 60 s when no pages came free recently. */
  retryAfterMs(pages: number, nowMs: number): number {
    const pagesPerMs = this.#recentAt(nowMs) / DECAY_MS;
    const expectedMs = pagesPerMs > 0 ? pages / pagesPerMs : LONGEST_MS;
    return Math.round(Math.min(LONGEST_MS, Math.max(SHORTEST_MS, expectedMs)));
  }

  #recentAt(nowMs: number): number {
    return this.#recentPages * Math.exp(-(nowMs - this.#atMs) / DECAY_MS);
  }
}
