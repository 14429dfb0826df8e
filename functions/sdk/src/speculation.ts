import type { Output } from 'pie:inferlet/fused@0.1.0';
import { Chooser } from './chooser.ts';
import { type Decoder, wireSampler } from './decoders.ts';
import { InferletError } from './errors.ts';
import type { Distribution, Sampler } from './samplers.ts';
import type { Sequence } from './sequence.ts';

/** Tokens that are likely to follow a text, at most `most`; none is fine. */
export type Proposal = (tokens: readonly number[], most: number) => readonly number[] | Promise<readonly number[]>;

/** What a speculator may know of a generation. */
export interface SpeculationStart {
  readonly sampler: Sampler;
  /** The seed of every draw. */
  readonly seed: number;
  readonly vocabularySize: number;
  readonly stopTokens: readonly number[];
}

/** Guesses tokens for one generation. */
export interface Speculation {
  readonly propose: Proposal;
  /**
   * What the model made of the last proposal: `choices[i]` is the token that it would have after the first `i` tokens of it. The first
   * `accepted` were right, so the text went on with them and with `choices[accepted]`.
   */
  verified?(choices: readonly number[], accepted: number): void;
  /** Called when the generation has ended. */
  stop?(): void;
}

/** Guesses what follows, so that the model can verify several tokens in one pass instead of computing one by one. */
export interface Speculator {
  begin(start: SpeculationStart): Speculation;
}

/** @internal A decoder that verifies what a speculator guesses, in one fused call for all of it. */
export function speculativeDecoder(
  sequence: Sequence,
  sampler: Sampler,
  speculator: Speculator | Proposal,
  seed: number,
  stopTokens: readonly number[],
): Decoder {
  if (!sequence.fused) {
    throw new InferletError(
      'unsupported',
      `${sequence.model.name} cannot verify several tokens at once (trait fused).`,
    );
  }
  const own = sampler.seed ?? seed;
  const { vocabularySize } = sequence.model;
  const speculation =
    typeof speculator === 'function'
      ? { propose: speculator }
      : speculator.begin({ sampler, seed: own, vocabularySize, stopTokens });
  return new SpeculativeDecoder(sequence, sampler, own, speculation);
}

/**
 * Every token is the one that the sampler gives at its position over the model's own distribution, whatever was guessed: a guess that is
 * the same is taken with its keys and values, the first that is not ends the step. Draws depend on seed and position only, so the text is
 * the very text without a speculator, at any temperature; for a guess that was not drawn this is speculative rejection sampling itself.
 */
class SpeculativeDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #sampler: Sampler;
  readonly #seed: number;
  readonly #chooser: Chooser | undefined;
  readonly #speculation: Speculation;
  /** Slots that the device has filled, rejected ones too. */
  #written = 0;
  #stopped = false;

  constructor(sequence: Sequence, sampler: Sampler, seed: number, speculation: Speculation) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#seed = seed;
    this.#chooser = sampler.kind === 'guest' ? new Chooser(sampler, seed) : undefined;
    this.#speculation = speculation;
  }

  async next(left: number): Promise<readonly number[]> {
    const sequence = this.#sequence;
    this.#takeBack();
    // One token comes without a guess.
    const proposal = left > 1 ? await this.#speculation.propose(sequence.tokens, left - 1) : [];
    if (this.#stopped) return [];
    const drafts = this.#usable(proposal.slice(0, left - 1));
    const output: Output =
      this.#sampler.kind === 'guest'
        ? { tag: 'distributions', val: this.#sampler.candidates }
        : { tag: 'sample', val: wireSampler(this.#sampler, sequence, this.#seed) };
    const verifying = sequence.verify(drafts, output);
    this.#written = sequence.cached + drafts.length;
    const { tokens, distributions } = await verifying;
    if (this.#stopped) return [];
    const choices = this.#chooser ? this.#choose(this.#chooser, distributions, drafts) : tokens;
    let accepted = 0;
    while (accepted < drafts.length && choices[accepted] === drafts[accepted]) accepted++;
    this.#speculation.verified?.(choices, accepted);
    return choices.slice(0, accepted + 1);
  }

  stop(rollBack: boolean): void {
    this.#stopped = true;
    if (rollBack) this.#takeBack();
    this.#speculation.stop?.();
  }

  /** Guesses up to the first that is no token. */
  #usable(drafts: readonly number[]): readonly number[] {
    const { vocabularySize } = this.#sequence.model;
    const end = drafts.findIndex((token) => !(Number.isInteger(token) && token >= 0 && token < vocabularySize));
    return end < 0 ? drafts : drafts.slice(0, end);
  }

  /** Asks the sampler row by row, as long as the rows before were guessed right; what comes after is only the model's likeliest. */
  #choose(chooser: Chooser, distributions: readonly Distribution[], drafts: readonly number[]): number[] {
    const choices: number[] = [];
    let right = true;
    for (const [row, distribution] of distributions.entries()) {
      choices.push(
        right ? chooser.choose(distribution, this.#sequence, drafts.slice(0, row)) : (distribution.tokens[0] ?? 0),
      );
      right &&= choices[row] === drafts[row];
    }
    return choices;
  }

  #takeBack(): void {
    if (this.#written > this.#sequence.cached) this.#sequence.cut(this.#sequence.cached);
    this.#written = 0;
  }
}
