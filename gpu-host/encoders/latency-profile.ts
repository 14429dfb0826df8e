import type { Encoder } from '../backends/encoder.ts';

/** Target time of a batch, ms. A longer batch would hold up the steps of causal models on the same device. */
const TARGET_MS = 25;
/** Tokens of a short batch, whose time is nearly all fixed. */
const SHORT_TOKENS = 32;
/** A batch may take this many times as long as a short one, since smaller batches would hardly end sooner and compute far fewer texts. */
const SHORT_TIMES = 4;
/** Maximum time that {@link SHORT_TIMES} allows, ms. Where a short batch alone takes longer, a batch may take as long as the short one. */
const MOST_MS = 100;
/** Tokens of the first batch, before any was measured. */
const FIRST_TOKENS = 128;
/** The sizes of the curve are powers of two up to this exponent. */
const LARGEST_EXPONENT = 14;
/** Minimum time of a batch, ms, since a coarse clock may measure none. */
const LEAST_MS = 1e-3;
/** Weight of the latest batch in the measured time of its size. */
const WEIGHT = 0.2;
/** Weight of the latest batch in the measured times of the other sizes. */
const OTHERS_WEIGHT = 0.1;

/** A measured size of the curve: batches of up to `tokens` tokens and more than half of that, padding included. */
export interface LatencyPoint {
  readonly tokens: number;
  /** Mean time per token, padding included. */
  readonly msPerToken: number;
}

/**
 * An encoder's time for a batch by its size, measured at the start and while it serves. Each size is twice the one before. A single mean over all
 * sizes would mistake the fixed time of small batches for a slow device. Pure.
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
   * Maximum tokens of the next batch, padding included. So many tokens take {@link TARGET_MS}, or more where short batches are slow
   * ({@link SHORT_TIMES}). The next batch is at most twice as large as the largest measured size that meets this target.
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
    // A device that becomes slower or faster does so for all sizes, and the other sizes may not be measured again soon, so their times follow. They
    // follow with less weight, so that a size whose first measurement was disturbed does not stay out of line with the others.
    for (const [i, msPerToken] of this.#msPerToken.entries()) {
      const weight = i === exponent ? WEIGHT : OTHERS_WEIGHT;
      if (msPerToken !== undefined) this.#msPerToken[i] = msPerToken * (1 + weight * (measured / previous - 1));
    }
  }
}

/** Tokens of a measured text. */
const TEXT_TOKENS = 16;
/** Tokens of the measured batches. */
const SIZES = [16, 64, 256, 1024, 4096];
/** Runs of each size. The fastest one counts, because other work on the machine slows some runs. */
const RUNS = 3;
/** Measuring ends after the first size whose batch takes longer than this, ms. */
const ENOUGH_MS = 12;

/** Measures batches of an encoder before it serves, so that its first batches have a fitting size. */
export async function measured(encoder: Encoder): Promise<LatencyProfile> {
  const profile = new LatencyProfile();
  const length = Math.min(TEXT_TOKENS, encoder.config.contextLength);
  const text = { tokens: new Uint32Array(length), types: new Uint8Array(length) };
  for (const size of SIZES) {
    const texts = new Array<typeof text>(Math.ceil(size / length)).fill(text);
    // The first run of a size allocates its memory.
    await encoder.encode(texts);
    let ms = Number.POSITIVE_INFINITY;
    for (let run = 0; run < RUNS; run++) {
      const startedMs = performance.now();
      await encoder.encode(texts);
      ms = Math.min(ms, performance.now() - startedMs);
    }
    profile.note(texts.length * length, ms);
    if (ms > ENOUGH_MS) break;
  }
  return profile;
}
