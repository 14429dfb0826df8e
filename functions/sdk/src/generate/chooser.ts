import type { Sequence } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import { drawOf, reseed } from './random.ts';
import type { Distribution, GuestSampler } from './samplers.ts';

/** Asks a guest sampler for the tokens of one generation, one after the other. */
export class Chooser {
  readonly candidates: number;
  readonly #sampler: Pick<GuestSampler, 'choose'>;
  readonly #seed: number;
  #generated = 0;

  constructor(sampler: Pick<GuestSampler, 'candidates' | 'choose'>, seed: number) {
    this.candidates = sampler.candidates;
    this.#sampler = sampler;
    this.#seed = seed;
  }

  /** Counts tokens of the generation that the sampler did not choose. */
  skip(tokens: number): void {
    this.#generated += tokens;
  }

  /** Chooses the token that follows the sequence and `ahead`, the chosen tokens that the sequence does not hold yet. */
  choose(distribution: Distribution, sequence: Sequence, ahead: readonly number[] = []): number {
    const { length, compactions, model } = sequence;
    const tokens = ahead.length === 0 ? sequence.tokens : [...sequence.tokens, ...ahead];
    // As on the device, a draw depends on the position of the last input. A compaction reuses positions, so it must change the seed.
    const lastPosition = length + ahead.length - 1;
    const random = drawOf(reseed(this.#seed, compactions), lastPosition);
    const token = this.#sampler.choose(distribution, { tokens, random, generated: this.#generated++ });
    if (Number.isInteger(token) && token >= 0 && token < model.vocabularySize) return token;
    throw new InferletError('invalid-argument', `The sampler chose ${token}, which is not a token id.`);
  }
}
