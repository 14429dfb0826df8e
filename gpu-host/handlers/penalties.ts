import type { Draw, TopTokens } from '../backends/backend.ts';
import { drawPlace } from '../backends/draw.ts';
import { type CallFault, fault } from '../memory/fault.ts';
import type { LogitChanges, Sampler } from '../protocol/calls.ts';
import { MAX_CHOSEN } from '../protocol/wire.ts';
import { checkTokens } from './checks.ts';
import { RowChangeList } from './row-changes.ts';
import { candidatesWanted } from './sampler.ts';

/** Maximum biases of a run: to sort them takes time of the host's thread, which all inferlets share. */
const MAX_BIASES = 1024;
/** Largest penalty or bias: even sums over a whole text stay far below the largest 32-bit float. */
const MAX_CHANGE = 1e6;

/**
 * Changes of a run's logits (`wit/penalties.wit`): biases, and penalties for tokens that the text has chosen. The run asks the backend for the most
 * probable tokens that no bias excludes: as many as its sampler wants, and one more for each token that a change can move below those. The changes
 * are kept as sorted lists, which take no more memory than the lists of the call, for which the inferlet is charged.
 */
export class Penalties {
  readonly #frequency: number;
  readonly #presence: number;
  /** The tokens that the text had chosen before the run, sorted; none without penalties. */
  readonly #chosenBefore: Uint32Array;
  readonly #distinctChosenCount: number;
  /** Number of times that the run has sampled each token. */
  readonly #sampleCounts = new Map<number, number>();
  /** Sorted; the bias of the token at an index is at the same index of `#biasValues`. */
  readonly #biasedTokens: Uint32Array;
  readonly #biasValues: Float32Array;
  /** Tokens with a bias of negative infinity; the list may name one more than once. */
  readonly #excludedTokens: Uint32Array;
  readonly #vocabularySize: number;
  /** True when a change may raise a token: then any token may become one of the most probable. */
  readonly #mayRaise: boolean;
  #list: RowChangeList | undefined;

  /**
   * @param position position of the run's first input. The limit of `chosen` grows with it: a run that continues one that a quota cut short
   *   has that run's tokens in `chosen` as well, at most one for each earlier position
   * @throws CallFault `invalid-argument` or `limit-exceeded`
   */
  constructor(
    { frequency, presence, biasTokens, biasValues, chosen }: LogitChanges,
    vocabularySize: number,
    position: number,
  ) {
    checkValue('frequency', frequency);
    checkValue('presence', presence);
    checkLength('biases', biasTokens, MAX_BIASES);
    checkLength('chosen tokens', chosen, MAX_CHOSEN + position);
    if (biasValues.length !== biasTokens.length)
      throw fault('invalid-argument', `${biasValues.length} bias-values for ${biasTokens.length} bias-tokens`);
    checkTokens(biasTokens, vocabularySize);
    checkTokens(chosen, vocabularySize);
    for (const value of biasValues) if (value !== Number.NEGATIVE_INFINITY) checkValue('bias', value);
    this.#excludedTokens = biasTokens.filter((_, i) => biasValues[i] === Number.NEGATIVE_INFINITY);
    this.#vocabularySize = vocabularySize;
    if (new Set(this.#excludedTokens).size === vocabularySize) throw nothingLeft();
    const order = Uint32Array.from(biasTokens.keys()).sort(
      (a, b) => (biasTokens[a] as number) - (biasTokens[b] as number),
    );
    this.#biasedTokens = order.map((place) => biasTokens[place] as number);
    this.#biasValues = Float32Array.from(order, (place) => biasValues[place] as number);
    this.#frequency = frequency;
    this.#presence = presence;
    this.#mayRaise = frequency < 0 || presence < 0 || biasValues.some((value) => value > 0);
    this.#chosenBefore = this.#penalizes ? chosen.toSorted() : new Uint32Array();
    this.#distinctChosenCount = this.#chosenBefore.reduce(
      (sum, token, i) => (token === this.#chosenBefore[i - 1] ? sum : sum + 1),
      0,
    );
  }

  /** The same changes for a device that applies them; `noteToken` keeps them up to date. */
  onDevice(): RowChangeList {
    const penalties = { frequency: this.#frequency, presence: this.#presence };
    this.#list ??= new RowChangeList(
      penalties,
      (token) => this.#changeOf(token),
      this.#biasedTokens,
      this.#chosenBefore,
    );
    return this.#list;
  }

  /** Counts a token that the run has sampled. */
  noteToken(token: number): void {
    if (!this.#penalizes) return;
    this.#sampleCounts.set(token, (this.#sampleCounts.get(token) ?? 0) + 1);
    this.#list?.noteToken(token);
  }

  /**
   * The tokens that no bias excludes, in the form of `StepRequest.allowed`; undefined when no bias excludes any. Each step makes the words
   * anew: if the run kept them, they would take memory for which the inferlet is not charged.
   */
  allowed(): Uint32Array | undefined {
    if (this.#excludedTokens.length === 0) return undefined;
    const words = new Uint32Array(Math.ceil(this.#vocabularySize / 32)).fill(0xffff_ffff);
    for (const token of this.#excludedTokens)
      words[token >>> 5] = (words[token >>> 5] as number) & ~(1 << (token & 31));
    return words;
  }

  /** Number of most probable `allowed` tokens that the run must ask for, so that the changes leave the sampler as many as it wants. */
  candidates(sampler: Sampler, maxTopK: number): number {
    if (this.#mayRaise) return maxTopK;
    const changedCount =
      this.#distinctChosenCount + this.#sampleCounts.size + this.#biasedTokens.length - this.#excludedTokens.length;
    return Math.min(maxTopK, candidatesWanted(sampler, maxTopK) + changedCount);
  }

  /**
   * Draws the token after the input at `position`.
   * @param top the input's most probable `allowed` tokens, before penalties and other biases
   * @throws CallFault `internal` when the model computed no numbers, `invalid-argument` when the changes leave no token
   */
  tokenOf(sampler: Sampler, top: TopTokens, maxTopK: number, position: number): number {
    if (Number.isNaN(top.logProbabilities[0])) throw fault('internal', 'the model computed no numbers for this input');
    const { tokens, logits } = this.#applyChanges(top);
    const candidateCount = Math.min(tokens.length, candidatesWanted(sampler, maxTopK));
    if (candidateCount === 0) throw nothingLeft();
    if (sampler.temperature === 0 || candidateCount === 1) return tokens[0] as number;
    const draw: Draw = { ...sampler, position };
    return tokens[drawPlace(draw, Float32Array.from(logits), 0, candidateCount)] as number;
  }

  /** Applies penalties and biases to `top`. Returns the tokens that remain, most probable first, equally probable ones by token id. */
  #applyChanges({ tokens, logProbabilities }: TopTokens): { readonly tokens: number[]; readonly logits: number[] } {
    const changedTokens: { readonly token: number; readonly logit: number }[] = [];
    const unchangedIndices: number[] = [];
    for (const [index, token] of tokens.entries()) {
      const change = this.#changeOf(token);
      const logit = Math.fround((logProbabilities[index] as number) + change);
      if (logit === Number.NEGATIVE_INFINITY) continue;
      if (change === 0) unchangedIndices.push(index);
      else changedTokens.push({ token, logit });
    }
    changedTokens.sort((a, b) => b.logit - a.logit || a.token - b.token);
    // The unchanged candidates are in order already, so merge them with the changed ones.
    const merged = { tokens: [] as number[], logits: [] as number[] };
    const push = (token: number, logit: number): void => {
      merged.tokens.push(token);
      merged.logits.push(logit);
    };
    let nextChanged = 0;
    for (const index of unchangedIndices) {
      const [token, logit] = [tokens[index] as number, logProbabilities[index] as number];
      let changed = changedTokens[nextChanged];
      while (changed && (changed.logit > logit || (changed.logit === logit && changed.token < token))) {
        push(changed.token, changed.logit);
        changed = changedTokens[++nextChanged];
      }
      push(token, logit);
    }
    for (const { token, logit } of changedTokens.slice(nextChanged)) push(token, logit);
    return merged;
  }

  #changeOf(token: number): number {
    let change = 0;
    for (let i = firstOf(this.#biasedTokens, token); this.#biasedTokens[i] === token; i++)
      change += this.#biasValues[i] as number;
    if (!this.#penalizes) return change;
    const countBefore = firstOf(this.#chosenBefore, token + 1) - firstOf(this.#chosenBefore, token);
    const count = countBefore + (this.#sampleCounts.get(token) ?? 0);
    return count === 0 ? change : change - this.#frequency * count - this.#presence;
  }

  get #penalizes(): boolean {
    return this.#frequency !== 0 || this.#presence !== 0;
  }
}

function nothingLeft(): CallFault {
  return fault('invalid-argument', 'the changes of the logits leave no token');
}

/** The index in a sorted list of the first token that is not below `token`. */
function firstOf(sorted: Uint32Array, token: number): number {
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((sorted[middle] as number) < token) from = middle + 1;
    else to = middle;
  }
  return from;
}

function checkLength(noun: string, { length }: Uint32Array, limit: number): void {
  if (length > limit) throw fault('limit-exceeded', `${length} ${noun}; ${limit} is the limit`);
}

function checkValue(name: string, value: number): void {
  if (Math.abs(value) <= MAX_CHANGE) return;
  throw fault('invalid-argument', `${name} ${value}; a number from -${MAX_CHANGE} to ${MAX_CHANGE} is expected`);
}
