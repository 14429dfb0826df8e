/**
 * Maximum milliseconds that the host keeps a token of a run. A hand-over wakes three processes, which costs more than
 * a small model's token.
 */
export const RUN_SLICE_MS = 25;

/** A run that keeps tokens until its slice ends. */
export interface SlicedRun {
  /** Writes the kept tokens as one result. */
  handOver(): void;
}

/**
 * Time slices of a model's runs: all runs that keep tokens hand them over together, in one flush. A slice begins with the first kept token, so no
 * token waits longer than one slice, and an idle model has no timer. An even slice begins where the slice before it ended, unless that one handed
 * over nothing. Without even slices, the client of a model with long steps waits for a step and a slice. Guests that read each token have no even
 * slices: these would wake them more often.
 */
export class RunSlices {
  readonly #flush: () => void;
  readonly #even: boolean;
  readonly #runs = new Set<SlicedRun>();
  #timer: NodeJS.Timeout | undefined;

  /** @param flush sends the written results */
  constructor(flush: () => void, { even = false } = {}) {
    this.#flush = flush;
    this.#even = even;
  }

  /** Adds a run that keeps tokens until the slice ends. */
  add(run: SlicedRun): void {
    this.#runs.add(run);
    if (!this.#timer) this.#begin();
  }

  /** Removes a run that keeps no tokens any more. */
  delete(run: SlicedRun): void {
    this.#runs.delete(run);
  }

  /** Stops the timer; kept tokens are lost. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#runs.clear();
  }

  #begin(): void {
    this.#timer = setTimeout(() => this.#end(), RUN_SLICE_MS);
  }

  #end(): void {
    this.#timer = undefined;
    if (this.#runs.size === 0) return;
    const runs = [...this.#runs];
    this.#runs.clear();
    for (const run of runs) run.handOver();
    this.#flush();
    if (this.#even && !this.#timer) this.#begin();
  }
}
