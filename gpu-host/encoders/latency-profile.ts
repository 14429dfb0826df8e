/** Time of a batch, ms. A longer one would hold up the steps of causal models on the same device. */
const TARGET_MS = 25;
/** Tokens of a short batch, whose time is nearly all fixed. */
const SHORT_TOKENS = 32;
/**
 * A batch may take this many times as long as a short one, up to {@link MOST_MS}: smaller batches would hardly end
 * sooner and compute far fewer texts. Where a short one alone takes longer than that, a batch takes no longer than a
 * short one.
 */
const SHORT_TIMES = 4;
const MOST_MS = 100;
/** Tokens of the first batch, before any was measured. */
const FIRST_TOKENS = 128;
/** The sizes of the curve are powers of two up to this exponent. */
const LARGEST_EXPONENT = 14;
/** Minimum time of a batch, ms, since a coarse clock may measure none. */
const LEAST_MS = 1e-3;
/** Weight of the latest batch in the measured time of its size, and in those of the other sizes. */
const WEIGHT = 0.2;
const OTHERS_WEIGHT = 0.1;

/** A measured point of the curve: batches of more than half of `tokens`, padding included. */
export interface LatencyPoint {
  readonly tokens: number;
  /** Mean time per token, padding included. */
  readonly msPerToken: number;
}

/**
 * An encoder's time for a batch by its size, measured online; each size doubles the one before. A single mean over all sizes would mistake the
 * fixed time of small batches for a slow device. Pure.
 */
export class LatencyProfile {
  readonly #msPerToken: (number | undefined)[] = [];

  /** The measured sizes, smallest first. */
  get curve(): readonly LatencyPoint[] {
    return this.#msPerToken.flatMap((msPerToken, exponent) =>
      msPerToken === undefined ? [] : [{ tokens: 2 ** exponent, msPerToken }],
    );
  }

  /**
   * Maximum tokens of the next batch, padding included: as many as take {@link TARGET_MS}, or longer where a short batch does
   * ({@link SHORT_TIMES}), but at most the next size above the measured ones.
   */
  get maxTokens(): number {
    const { curve } = this;
    const timeOf = ({ tokens, msPerToken }: LatencyPoint) => tokens * msPerToken;
    const shortBatchesMs = curve.filter(({ tokens }) => tokens <= SHORT_TOKENS).map(timeOf);
    const shortMs = shortBatchesMs.length === 0 ? 0 : Math.min(...shortBatchesMs);
    const targetMs = Math.max(TARGET_MS, shortMs, Math.min(SHORT_TIMES * shortMs, MOST_MS));
    const fittingIndex = curve.findLastIndex((point) => timeOf(point) <= targetMs);
    const [fittingPoint, nextPoint] = [curve[fittingIndex], curve[fittingIndex + 1]];
    if (!fittingPoint) return nextPoint ? Math.max(1, Math.floor(targetMs / nextPoint.msPerToken)) : FIRST_TOKENS;
    const estimatedTokens = Math.floor(targetMs / (nextPoint ?? fittingPoint).msPerToken);
    return Math.max(fittingPoint.tokens, Math.min(estimatedTokens, fittingPoint.tokens * 2, 2 ** LARGEST_EXPONENT));
  }

  /** Notes a batch of this many tokens, padding included. */
  note(tokens: number, ms: number): void {
    const exponent = Math.min(LARGEST_EXPONENT, Math.ceil(Math.log2(tokens)));
    const measured = Math.max(ms, LEAST_MS) / tokens;
    const previous = this.#msPerToken[exponent];
    if (previous === undefined) {
      this.#msPerToken[exponent] = measured;
      return;
    }
    // A device that has become slower or faster is so for all sizes, and other sizes may not be measured again soon. Their times follow with
    // less weight, so that a size whose first measurement was disturbed does not stay out of line with them.
    for (const [i, msPerToken] of this.#msPerToken.entries()) {
      const weight = i === exponent ? WEIGHT : OTHERS_WEIGHT;
      if (msPerToken !== undefined) this.#msPerToken[i] = msPerToken * (1 + weight * (measured / previous - 1));
    }
  }
}
