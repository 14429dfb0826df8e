/** Share of the old estimate that one smaller run leaves. */
const DECAY = 0.9;
/** Function versions remembered; the one not seen for longest goes first. */
const MAX_FUNCTIONS = 4096;

/**
 * How many KV pages a function is expected to hold, from what its past runs held at most: a peak that decays, so that it follows growth
 * at once and shrinkage slowly. Pure.
 */
export class PageEstimator {
  readonly #peaks = new Map<string, Map<string, number>>();

  /** What is expected of a function version, by model; `fallback` where nothing is known. */
  expect(functionVersion: string, declared: Readonly<Record<string, number>> = {}): Record<string, number> {
    const expected: Record<string, number> = {};
    for (const [model, peak] of this.#peaks.get(functionVersion) ?? []) expected[model] = Math.ceil(peak);
    return { ...expected, ...declared };
  }

  /** What one run held at most, by model. */
  observe(functionVersion: string, held: Readonly<Record<string, number>>): void {
    const peaks = this.#peaks.get(functionVersion) ?? new Map<string, number>();
    this.#peaks.delete(functionVersion);
    this.#peaks.set(functionVersion, peaks);
    for (const [model, pages] of Object.entries(held)) {
      const before = peaks.get(model);
      peaks.set(model, before === undefined ? pages : Math.max(pages, before * DECAY + pages * (1 - DECAY)));
    }
    if (this.#peaks.size > MAX_FUNCTIONS) {
      for (const oldest of this.#peaks.keys()) {
        this.#peaks.delete(oldest);
        break;
      }
    }
  }
}
