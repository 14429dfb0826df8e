import type { Draw, TopTokens } from '../backends/backend.ts';
import { drawPlace } from '../backends/draw.ts';
import { fault } from '../memory/fault.ts';
import type { LogitChanges, Sampler } from '../protocol/calls.ts';
import { checkTokens } from './checks.ts';
import { candidatesWanted } from './sampler.ts';

/** Maximum biases of a run. */
const MAX_BIASES = 1024;

/**
 * Changes of a run's logits (`wit/penalties.wit`): biases, and penalties for tokens that the text has chosen. They apply to the most probable
 * tokens, of which the run asks as many as the changes can move below the ones that its sampler wants.
 */
export class Penalties {
  readonly #frequency: number;
  readonly #presence: number;
  /** How often the text has chosen each token. Empty without penalties. */
  readonly #counts = new Map<number, number>();
  readonly #biases = new Map<number, number>();
  /** True when a change may raise a token, from any place below. */
  readonly #raises: boolean;

  /** @throws CallFault `invalid-argument` or `limit-exceeded` */
  constructor({ frequency, presence, biasTokens, biasValues, chosen }: LogitChanges, vocabularySize: number) {
    checkFinite('frequency', frequency);
    checkFinite('presence', presence);
    if (biasTokens.length > MAX_BIASES)
      throw fault('limit-exceeded', `${biasTokens.length} biases; ${MAX_BIASES} is the limit`);
    if (biasValues.length !== biasTokens.length)
      throw fault('invalid-argument', `${biasValues.length} bias-values for ${biasTokens.length} bias-tokens`);
    checkTokens(biasTokens, vocabularySize);
    checkTokens(chosen, vocabularySize);
    for (const [i, value] of biasValues.entries()) {
      if (value !== Number.NEGATIVE_INFINITY) checkFinite('bias', value);
      const token = biasTokens[i] as number;
      this.#biases.set(token, (this.#biases.get(token) ?? 0) + value);
    }
    this.#frequency = frequency;
    this.#presence = presence;
    this.#raises = frequency < 0 || presence < 0 || biasValues.some((value) => value > 0);
    for (const token of chosen) this.took(token);
  }

  /** Counts a token that the run has sampled. */
  took(token: number): void {
    if (this.#frequency === 0 && this.#presence === 0) return;
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1);
  }

  /** Number of most probable tokens that the next draw must see. */
  candidates(sampler: Sampler, maxTopK: number): number {
    if (this.#raises) return maxTopK;
    return Math.min(maxTopK, candidatesWanted(sampler, maxTopK) + this.#counts.size + this.#biases.size);
  }

  /**
   * The token after an input at `position`, from its most probable ones before the changes.
   * @throws CallFault `internal` when the model computed no numbers, `invalid-argument` when the changes leave no token
   */
  tokenOf(sampler: Sampler, { tokens, logProbabilities }: TopTokens, maxTopK: number, position: number): number {
    if (Number.isNaN(logProbabilities[0])) throw fault('internal', 'the model computed no numbers for this input');
    const kept: Candidate[] = [];
    for (const [place, token] of tokens.entries()) {
      const logit = (logProbabilities[place] as number) + this.#changeOf(token);
      if (logit > Number.NEGATIVE_INFINITY) kept.push({ token, logit });
    }
    if (kept.length === 0) throw fault('invalid-argument', 'the changes of the logits leave no token');
    kept.sort((a, b) => b.logit - a.logit || a.token - b.token);
    const wanted = Math.min(kept.length, candidatesWanted(sampler, maxTopK));
    if (sampler.temperature === 0 || wanted === 1) return (kept[0] as Candidate).token;
    const draw: Draw = { ...sampler, position };
    const logits = Float32Array.from({ length: wanted }, (_, i) => (kept[i] as Candidate).logit);
    return (kept[drawPlace(draw, logits, 0, wanted)] as Candidate).token;
  }

  #changeOf(token: number): number {
    const count = this.#counts.get(token) ?? 0;
    const penalty = count === 0 ? 0 : this.#frequency * count + this.#presence;
    return (this.#biases.get(token) ?? 0) - penalty;
  }
}

interface Candidate {
  readonly token: number;
  readonly logit: number;
}

function checkFinite(name: string, value: number): void {
  if (!Number.isFinite(value)) throw fault('invalid-argument', `${name} ${value}; a finite number is expected`);
}
