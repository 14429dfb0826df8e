import type { Draw, TopTokens } from '../backends/backend.ts';
import { drawPlace } from '../backends/draw.ts';
import { type CallFault, fault } from '../memory/fault.ts';
import type { LogitChanges, Sampler } from '../protocol/calls.ts';
import { MAX_CHOSEN } from '../protocol/wire.ts';
import { checkTokens } from './checks.ts';
import { RowChangeList } from './row-changes.ts';
import { candidatesWanted } from './sampler.ts';

/** Maximum biases of a run: sorting them takes time of the host's thread. */
const MAX_BIASES = 1024;
/** Largest penalty or bias. Sums of these over a text are far from the end of 32-bit floats. */
const LARGEST = 1e6;

/**
 * Changes of a run's logits (`wit/penalties.wit`): biases, and penalties for tokens that the text has chosen. They apply to the most probable
 * tokens that no bias excludes. The run requests those that its sampler wants, and as many more as the changes can move below them. Sorted lists
 * take as much memory as they took on the wire, which is the amount that their inferlet is charged.
 */
export class Penalties {
  readonly #frequency: number;
  readonly #presence: number;
  /** The tokens that the text had chosen before the run, sorted; none without penalties. */
  readonly #before: Uint32Array;
  readonly #distinct: number;
  /** Number of times that the run has sampled each token. */
  readonly #sampled = new Map<number, number>();
  /** Sorted, with the value of each. */
  readonly #biased: Uint32Array;
  readonly #biases: Float32Array;
  /** Tokens with a bias of negative infinity; the list may name one more than once. */
  readonly #excluded: Uint32Array;
  readonly #vocabularySize: number;
  /** True when a change may raise a token, from any place below. */
  readonly #raises: boolean;
  #list: RowChangeList | undefined;

  /**
   * @param position the run's. A run that continues one which a quota capped adds the tokens before the cap to `chosen`: at most one for
   *   each earlier position
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
    this.#excluded = biasTokens.filter((_, i) => biasValues[i] === Number.NEGATIVE_INFINITY);
    this.#vocabularySize = vocabularySize;
    if (new Set(this.#excluded).size === vocabularySize) throw nothingLeft();
    const order = Uint32Array.from(biasTokens.keys()).sort(
      (a, b) => (biasTokens[a] as number) - (biasTokens[b] as number),
    );
    this.#biased = order.map((place) => biasTokens[place] as number);
    this.#biases = Float32Array.from(order, (place) => biasValues[place] as number);
    this.#frequency = frequency;
    this.#presence = presence;
    this.#raises = frequency < 0 || presence < 0 || biasValues.some((value) => value > 0);
    this.#before = this.#penalizes ? chosen.toSorted() : new Uint32Array();
    this.#distinct = this.#before.reduce((sum, token, i) => (token === this.#before[i - 1] ? sum : sum + 1), 0);
  }

  /** The same changes for a device that applies them; `took` keeps them up to date. */
  onDevice(): RowChangeList {
    const penalties = { frequency: this.#frequency, presence: this.#presence };
    this.#list ??= new RowChangeList(penalties, (token) => this.#changeOf(token), this.#biased, this.#before);
    return this.#list;
  }

  /** Counts a token that the run has sampled. */
  took(token: number): void {
    if (!this.#penalizes) return;
    this.#sampled.set(token, (this.#sampled.get(token) ?? 0) + 1);
    this.#list?.took(token);
  }

  /**
   * The tokens that no bias excludes, as the row's `allowed` tokens; undefined when no bias excludes any. Each step makes them
   * anew: kept ones would take memory that the inferlet is not charged for.
   */
  allowed(): Uint32Array | undefined {
    if (this.#excluded.length === 0) return undefined;
    const words = new Uint32Array(Math.ceil(this.#vocabularySize / 32)).fill(0xffff_ffff);
    for (const token of this.#excluded) words[token >>> 5] = (words[token >>> 5] as number) & ~(1 << (token & 31));
    return words;
  }

  /** Number of most probable `allowed` tokens that the next draw must see. */
  candidates(sampler: Sampler, maxTopK: number): number {
    if (this.#raises) return maxTopK;
    const changed = this.#distinct + this.#sampled.size + this.#biased.length - this.#excluded.length;
    return Math.min(maxTopK, candidatesWanted(sampler, maxTopK) + changed);
  }

  /**
   * The token after an input at `position`, from its most probable `allowed` ones before the other changes.
   * @throws CallFault `internal` when the model computed no numbers, `invalid-argument` when the changes leave no token
   */
  tokenOf(sampler: Sampler, top: TopTokens, maxTopK: number, position: number): number {
    if (Number.isNaN(top.logProbabilities[0])) throw fault('internal', 'the model computed no numbers for this input');
    const { tokens, logits } = this.#changed(top);
    const wanted = Math.min(tokens.length, candidatesWanted(sampler, maxTopK));
    if (wanted === 0) throw nothingLeft();
    if (sampler.temperature === 0 || wanted === 1) return tokens[0] as number;
    const draw: Draw = { ...sampler, position };
    return tokens[drawPlace(draw, Float32Array.from(logits), 0, wanted)] as number;
  }

  /** The tokens that the changes leave, most probable first, equal ones by token id. */
  #changed({ tokens, logProbabilities }: TopTokens): { readonly tokens: number[]; readonly logits: number[] } {
    const moved: { readonly token: number; readonly logit: number }[] = [];
    const kept: number[] = [];
    for (const [place, token] of tokens.entries()) {
      const change = this.#changeOf(token);
      const logit = Math.fround((logProbabilities[place] as number) + change);
      if (logit === Number.NEGATIVE_INFINITY) continue;
      if (change === 0) kept.push(place);
      else moved.push({ token, logit });
    }
    moved.sort((a, b) => b.logit - a.logit || a.token - b.token);
    // The other candidates are in order, so merge both lists.
    const merged = { tokens: [] as number[], logits: [] as number[] };
    const push = (token: number, logit: number): void => {
      merged.tokens.push(token);
      merged.logits.push(logit);
    };
    let next = 0;
    for (const place of kept) {
      const [token, logit] = [tokens[place] as number, logProbabilities[place] as number];
      for (
        let at = moved[next];
        at && (at.logit > logit || (at.logit === logit && at.token < token));
        at = moved[++next]
      )
        push(at.token, at.logit);
      push(token, logit);
    }
    for (const { token, logit } of moved.slice(next)) push(token, logit);
    return merged;
  }

  #changeOf(token: number): number {
    let change = 0;
    for (let i = firstOf(this.#biased, token); this.#biased[i] === token; i++) change += this.#biases[i] as number;
    if (!this.#penalizes) return change;
    const before = firstOf(this.#before, token + 1) - firstOf(this.#before, token);
    const count = before + (this.#sampled.get(token) ?? 0);
    return count === 0 ? change : change - this.#frequency * count - this.#presence;
  }

  get #penalizes(): boolean {
    return this.#frequency !== 0 || this.#presence !== 0;
  }
}

function nothingLeft(): CallFault {
  return fault('invalid-argument', 'the changes of the logits leave no token');
}

/** The place of the first token of a sorted list that is not below `token`. */
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
  if (Math.abs(value) <= LARGEST) return;
  throw fault('invalid-argument', `${name} ${value}; a number from -${LARGEST} to ${LARGEST} is expected`);
}
