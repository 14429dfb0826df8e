/** A curve groups sizes by powers of two up to this exponent; its last group also takes all larger sizes. */
const LARGEST_EXPONENT = 14;
/** Weight of the latest step in the means of its size. */
const WEIGHT = 0.2;
/** A curve says nothing before its largest size is this many times its smallest. */
const LEAST_SPREAD = 8;
/** Largest size for which a curve gives an estimate, as a multiple of the largest measured size. */
const BEYOND = 2;
/** Minimum time of a step, ms, since a coarse clock may measure none. */
const LEAST_MS = 1e-3;

/** Mean size and mean time of the steps of one group: sizes above one power of two, up to the next power. */
export interface StepPoint {
  readonly size: number;
  readonly ms: number;
}

/** Times of steps by one measure of their size, measured at the start and in operation. Pure. */
export class StepCurve {
  /** Means by exponent. A group's first step may allocate memory for its size, so the second step replaces it. */
  readonly #means: ({ size: number; ms: number; steps: number } | undefined)[] = [];
  /** The most size per millisecond of any step; 0 before the first. */
  #bestRate = 0;

  /** The measured sizes, smallest first. */
  get points(): readonly StepPoint[] {
    return this.#means.flatMap((mean) => (mean ? [{ size: mean.size, ms: mean.ms }] : []));
  }

  note(size: number, ms: number): void {
    // The smallest exponent whose power of two is at least `size`.
    const exponent = Math.min(LARGEST_EXPONENT, 32 - Math.clz32(Math.ceil(size) - 1));
    const mean = this.#means[exponent];
    const time = Math.max(ms, LEAST_MS);
    this.#bestRate = Math.max(this.#bestRate, size / time);
    if (!mean) {
      this.#means[exponent] = { size, ms: time, steps: 1 };
      return;
    }
    const weight = mean.steps === 1 ? 1 : WEIGHT;
    mean.size += weight * (size - mean.size);
    mean.ms += weight * (time - mean.ms);
    mean.steps++;
  }

  /**
   * The largest size whose step is expected to take at most `maxMs`, as steps took lately; at least 1, and Infinity before any step was measured. A
   * step of k times the size takes at most k times as long, since a part of its time is fixed. This bound is far too low where the fixed part is
   * large, so the size also may be twice the largest size within the time, unless larger steps were measured: these show that twice the size takes
   * longer.
   */
  sizeWithin(maxMs: number): number {
    const { points } = this;
    if (points.length === 0) return Number.POSITIVE_INFINITY;
    let most = 1;
    for (const [i, { size, ms }] of points.entries()) {
      if (ms > maxMs) continue;
      const isLargest = i === points.length - 1;
      most = Math.max(most, (size * maxMs) / ms, isLargest ? 2 * size : 0);
    }
    return most;
  }

  /**
   * The largest size whose step can take at most `maxMs`, by the best rate of all steps; at least 1, and Infinity before any step was measured. No
   * slow step lowers it: a process without cores computes slowly, which says nothing about the device.
   */
  possibleWithin(maxMs: number): number {
    return this.#bestRate === 0 ? Number.POSITIVE_INFINITY : Math.max(1, maxMs * this.#bestRate);
  }

  /**
   * The maximum efficient size: the size at which the work of a step takes as long as an empty step. Up to this size, more work in a step costs
   * little; beyond, the time grows with the work. Undefined while the measured sizes do not show it.
   *
   * @param most size of the largest possible step
   */
  efficient(most: number): number | undefined {
    const { points } = this;
    const [smallest, largest] = [points[0], points.at(-1)];
    if (!smallest || !largest || largest.size < LEAST_SPREAD * smallest.size) return undefined;
    const { fixedMs, eachMs } = lineThrough(points);
    const size = eachMs > 0 ? Math.max(1, Math.round(Math.max(0, fixedMs) / eachMs)) : Number.POSITIVE_INFINITY;
    if (size <= BEYOND * largest.size) return Math.min(size, most);
    // The efficient size is larger than a curve can estimate, so at least `most` when the estimates reach `most`.
    return BEYOND * largest.size >= most ? most : undefined;
  }
}

/** The line with the least sum of squared relative errors: small steps count as much as large ones. */
function lineThrough(points: readonly StepPoint[]): { readonly fixedMs: number; readonly eachMs: number } {
  let [weights, sizes, squares, times, products] = [0, 0, 0, 0, 0];
  for (const { size, ms } of points) {
    const weight = 1 / ms ** 2;
    weights += weight;
    sizes += weight * size;
    squares += weight * size ** 2;
    times += weight * ms;
    products += weight * size * ms;
  }
  const eachMs = (weights * products - sizes * times) / (weights * squares - sizes ** 2);
  return { fixedMs: (times - eachMs * sizes) / weights, eachMs };
}

/**
 * A causal model's times of steps: by the inputs of any step (`tokens`), by the sequences of steps that decode only, and by the estimated work
 * of any step (`work`), which counts long contexts, too.
 */
export class StepProfile {
  readonly tokens = new StepCurve();
  readonly sequences = new StepCurve();
  readonly work = new StepCurve();

  /**
   * Notes a step of this many sequences with this many inputs in all.
   * @param work as `StepEstimate.work`, of all sequences; that of inputs without context by default
   */
  note(sequences: number, inputs: number, ms: number, work = inputs): void {
    this.tokens.note(inputs, ms);
    this.work.note(work, ms);
    if (inputs === sequences) this.sequences.note(sequences, ms);
  }
}
