/** How long what came free counts: its weight falls to a third in this time. */
const MEMORY_MS = 10_000;
/** Bounds of the hint: below the first a client would come back into the same pressure, past the second it should decide for itself. */
const SHORTEST_MS = 1000;
const LONGEST_MS = 60_000;

/**
 * How fast the pages of one model came free of late, as an average that forgets exponentially: pages that inferlets gave back or left
 * behind, those of inferlets that were ended for others' memory apart. Pure: times are passed in.
 */
export class PageTurnover {
  /** Pages, weighted by how long ago they came free. */
  #recent = 0;
  #atMs = 0;

  freed(pages: number, nowMs: number): void {
    this.#recent = this.#recentAt(nowMs) + pages;
    this.#atMs = nowMs;
  }

  /** When `pages` may have come free again, in whole milliseconds: 1 to 60 s. Without any that came free of late it is 60 s. */
  retryAfterMs(pages: number, nowMs: number): number {
    const pagesPerMs = this.#recentAt(nowMs) / MEMORY_MS;
    const expectedMs = pagesPerMs > 0 ? pages / pagesPerMs : LONGEST_MS;
    return Math.round(Math.min(LONGEST_MS, Math.max(SHORTEST_MS, expectedMs)));
  }

  #recentAt(nowMs: number): number {
    return this.#recent * Math.exp(-(nowMs - this.#atMs) / MEMORY_MS);
  }
}
