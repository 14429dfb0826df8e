import { Chooser } from './chooser.ts';
import type { Decoder } from './decoders.ts';
import { InferletError } from './errors.ts';
import { allocate, outputText } from './raw.ts';
import type { Distribution, GuestSampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';

/**
 * Decodes by separate embed, forward and next-distribution calls. This keeps the state available for probabilities of single tokens: the
 * improbable tokens that a sampler asks for, and the chosen token.
 */
export class LookingDecoder implements Decoder {
  /** Log-probability of the last token in the model's own distribution. */
  logProbabilities: readonly number[] = [];
  readonly #sequence: Sequence;
  readonly #chooser: Chooser;
  readonly #also: Uint32Array;
  readonly #tells: boolean;

  constructor(
    sequence: Sequence,
    sampler: Pick<GuestSampler, 'candidates' | 'choose' | 'also'>,
    seed: number,
    tells: boolean,
  ) {
    this.#sequence = sequence;
    this.#chooser = new Chooser(sampler, seed);
    this.#also = Uint32Array.from(sampler.also ?? []);
    this.#tells = tells;
  }

  async next(): Promise<readonly number[]> {
    const sequence = this.#sequence;
    const { queue, cached } = sequence;
    const embeds = sequence.advance();
    const state = embeds.at(-1) as number;
    const ask = (tokens: Uint32Array) => sequence.settle(outputText.logProbabilities(queue, state, tokens), cached);
    try {
      const [distribution, also] = await Promise.all([
        sequence.settle(outputText.nextDistribution(queue, state, this.#chooser.candidates), cached),
        this.#also.length > 0 ? ask(this.#also) : [],
      ]);
      const seen = merge(distribution, this.#also, also);
      const token = this.#chooser.choose(seen, sequence);
      if (this.#tells) {
        const at = Array.prototype.indexOf.call(seen.tokens, token);
        const known = at < 0 ? undefined : seen.logProbabilities[at];
        this.logProbabilities = known === undefined ? await ask(Uint32Array.of(token)) : [known];
      }
      return [token];
    } finally {
      allocate.freeEmbeds(queue, embeds);
    }
  }

  stop(): void {}
}

/** Adds tokens to a distribution, most probable first. */
function merge(distribution: Distribution, more: Uint32Array, logProbabilities: readonly number[]): Distribution {
  if (more.length === 0) return distribution;
  if (logProbabilities.length !== more.length)
    throw new InferletError('internal', 'The device left probabilities out.');
  const rows = new Map<number, number>();
  for (const [i, token] of Array.from(distribution.tokens).entries()) {
    rows.set(token, distribution.logProbabilities[i] as number);
  }
  for (const [i, token] of more.entries()) if (!rows.has(token)) rows.set(token, logProbabilities[i] as number);
  const sorted = [...rows].sort(([a, p], [b, q]) => q - p || a - b);
  return { tokens: sorted.map(([token]) => token), logProbabilities: sorted.map(([, value]) => value) };
}
