import type { Output } from 'pie:inferlet/fused@0.1.0';
import type { Sequence, StepCall } from '../context/sequence.ts';
import { InferletError } from '../errors.ts';
import { Chooser, type Decoder, wireSampler } from './decoders.ts';
import type { Distribution, Sampler } from './samplers.ts';

/** Returns up to `most` tokens that are likely to follow a text, or none. */
export type Proposal = (tokens: readonly number[], most: number) => readonly number[] | Promise<readonly number[]>;

/** Facts about a generation for its speculator. */
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
   * Reports the result of the last proposal: `choices[i]` is the model's token after the first `i` proposed tokens. The first `accepted`
   * proposed tokens were right, so the text continued with them and with `choices[accepted]`.
   */
  verified?(choices: readonly number[], accepted: number): void;
  /** Called when the generation has ended. */
  stop?(): void;
}

/** Guesses the next tokens, so that the model can verify several in one pass instead of computing them one by one. */
export interface Speculator {
  begin(start: SpeculationStart): Speculation;
}

/** @internal A decoder that verifies all guesses of a speculator in one call: `call`, by default `fused.step`. */
export function speculativeDecoder(
  sequence: Sequence,
  sampler: Sampler,
  speculator: Speculator | Proposal,
  seed: number,
  stopTokens: readonly number[],
  call?: StepCall,
): SpeculativeDecoder {
  if (!sequence.fused) {
    throw new InferletError(
      'unsupported',
      `${sequence.model.name} cannot verify several tokens at once (trait fused).`,
    );
  }
  const ownSeed = sampler.seed ?? seed;
  const { vocabularySize } = sequence.model;
  const speculation =
    typeof speculator === 'function'
      ? { propose: speculator }
      : speculator.begin({ sampler, seed: ownSeed, vocabularySize, stopTokens });
  return new SpeculativeDecoder(sequence, sampler, ownSeed, speculation, call && { call, stopTokens });
}

/** Most guesses under a constraint: `grammar.verify` takes 64 rows. */
const MAX_CONSTRAINED = 63;

/** A call that verifies under a constraint. */
interface Constrained {
  readonly call: StepCall;
  readonly stopTokens: readonly number[];
}

/**
 * Every token of the text is the sampler's choice from the model's own distribution, regardless of the guesses. A guess that equals the choice
 * is accepted with its keys and values; the first guess that differs ends the step. Draws depend only on seed and position, so the text equals
 * the text without a speculator, at any temperature. For guesses without randomness, this method equals speculative rejection sampling.
 */
class SpeculativeDecoder implements Decoder {
  readonly #sequence: Sequence;
  readonly #sampler: Sampler;
  readonly #seed: number;
  readonly #chooser: Chooser | undefined;
  readonly #speculation: Speculation;
  readonly #constrained: Constrained | undefined;
  /** Number of slots that the device has filled, those of rejected guesses included. */
  #written = 0;
  #stopped = false;

  constructor(
    sequence: Sequence,
    sampler: Sampler,
    seed: number,
    speculation: Speculation,
    constrained: Constrained | undefined,
  ) {
    this.#sequence = sequence;
    this.#sampler = sampler;
    this.#seed = seed;
    this.#chooser = sampler.kind === 'guest' ? new Chooser(sampler, seed) : undefined;
    this.#speculation = speculation;
    this.#constrained = constrained;
  }

  skip(tokens: number): void {
    this.#chooser?.skip(tokens);
  }

  async next(left: number): Promise<readonly number[]> {
    const sequence = this.#sequence;
    this.#dropRejected();
    // The verifying pass adds one token of its own, so guess one less than `left`.
    const proposal = left > 1 ? await this.#speculation.propose(sequence.tokens, left - 1) : [];
    if (this.#stopped) return [];
    const maxDrafts = this.#constrained ? Math.min(left - 1, MAX_CONSTRAINED) : left - 1;
    const drafts = this.#usable(proposal.slice(0, maxDrafts));
    const output: Output =
      this.#sampler.kind === 'guest'
        ? { tag: 'distributions', val: this.#sampler.candidates }
        : { tag: 'sample', val: wireSampler(this.#sampler, sequence, this.#seed) };
    const verifying = sequence.verify(drafts, output, this.#constrained?.call);
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
    if (rollBack) this.#dropRejected();
    this.#speculation.stop?.();
  }

  /** The guesses before the first invalid token id. Under a constraint, they also end before the first stop token: no later guess can be right. */
  #usable(drafts: readonly number[]): readonly number[] {
    const { vocabularySize } = this.#sequence.model;
    const { stopTokens = [] } = this.#constrained ?? {};
    const end = drafts.findIndex(
      (token) => !(Number.isInteger(token) && token >= 0 && token < vocabularySize) || stopTokens.includes(token),
    );
    return end < 0 ? drafts : drafts.slice(0, end);
  }

  /** Asks the sampler row by row while the guesses are right. For later rows, takes the model's most probable token. */
  #choose(chooser: Chooser, distributions: readonly Distribution[], drafts: readonly number[]): number[] {
    const choices: number[] = [];
    let allRight = true;
    for (const [row, distribution] of distributions.entries()) {
      choices.push(
        allRight ? chooser.choose(distribution, this.#sequence, drafts.slice(0, row)) : (distribution.tokens[0] ?? 0),
      );
      allRight &&= choices[row] === drafts[row];
    }
    return choices;
  }

  #dropRejected(): void {
    if (this.#written > this.#sequence.cached) this.#sequence.cut(this.#sequence.cached);
    this.#written = 0;
  }
}
