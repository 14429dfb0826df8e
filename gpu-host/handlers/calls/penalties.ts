import { CHOSEN_TOKEN, type RowChanges } from '../../backends/backend.ts';
import { fault } from '../../memory/fault.ts';
import type { LogitChanges } from '../../protocol/calls.ts';
import { MAX_CHOSEN } from '../../protocol/wire.ts';
import { checkTokens } from './checks.ts';

/** Maximum biases of a run: to sort them takes time of the host's thread, which all inferlets share. */
const MAX_BIASES = 1024;
/** Largest penalty or bias: even sums over a whole text stay far below the largest 32-bit float. */
const MAX_CHANGE = 1e6;

/**
 * Changes of a run's logits (`wit/penalties.wit`): biases, and penalties for tokens that the text has chosen, which the backend
 * applies. They are kept as sorted lists, which take about as much memory as the lists of the call, for which the inferlet is charged.
 */
export class Penalties {
  readonly #frequency: number;
  readonly #presence: number;
  /** The tokens that the text had chosen before the run, sorted; none without penalties. */
  readonly #chosenBefore: Uint32Array;
  /** Number of times that the run has sampled each token. */
  readonly #sampleCounts = new Map<number, number>();
  /** Sorted; the bias of the token at an index is at the same index of `#biasValues`. */
  readonly #biasedTokens: Uint32Array;
  readonly #biasValues: Float32Array;
  /** The current changes, in the form that a backend takes. */
  readonly changes: RowChangeList;

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
    const excludedTokens = biasTokens.filter((_, i) => biasValues[i] === Number.NEGATIVE_INFINITY);
    if (new Set(excludedTokens).size === vocabularySize)
      throw fault('invalid-argument', 'the changes of the logits leave no token');
    const order = Uint32Array.from(biasTokens.keys()).sort(
      (a, b) => (biasTokens[a] as number) - (biasTokens[b] as number),
    );
    this.#biasedTokens = order.map((place) => biasTokens[place] as number);
    this.#biasValues = Float32Array.from(order, (place) => biasValues[place] as number);
    this.#frequency = frequency;
    this.#presence = presence;
    this.#chosenBefore = this.#penalizes ? chosen.toSorted() : new Uint32Array();
    this.changes = new RowChangeList(
      { frequency, presence },
      (token) => this.#changeOf(token),
      this.#biasedTokens,
      this.#chosenBefore,
    );
  }

  /** Counts a token that the run has sampled. */
  noteToken(token: number): void {
    if (!this.#penalizes) return;
    this.#sampleCounts.set(token, (this.#sampleCounts.get(token) ?? 0) + 1);
    this.changes.noteToken(token);
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

const INITIAL_CAPACITY = 64;

/**
 * Changes of a run's logits in the form that a backend applies, kept up to date token by token: a step copies the lists as they are. They take
 * eight bytes for each distinct token that the run has a bias for or has chosen.
 */
export class RowChangeList {
  /** Sorted by token. Tokens that the run has chosen carry the flag `CHOSEN_TOKEN`. */
  #tokens: Uint32Array;
  #values: Float32Array;
  #length = 0;
  readonly #frequency: number;
  readonly #presence: number;
  readonly #changeOf: (token: number) => number;

  /**
   * @param changeOf the sum of a token's changes at the time of the call
   * @param biased tokens with a bias, sorted; a token may come more than once
   * @param chosen tokens chosen so far, sorted; a token may come more than once
   */
  constructor(
    { frequency, presence }: { readonly frequency: number; readonly presence: number },
    changeOf: (token: number) => number,
    biased: Uint32Array,
    chosen: Uint32Array,
  ) {
    this.#frequency = frequency;
    this.#presence = presence;
    this.#changeOf = changeOf;
    this.#tokens = new Uint32Array(Math.max(INITIAL_CAPACITY, biased.length + chosen.length));
    this.#values = new Float32Array(this.#tokens.length);
    const append = (token: number, flag: number): void => {
      this.#tokens[this.#length] = token | flag;
      this.#values[this.#length++] = changeOf(token);
    };
    // `CHOSEN_TOKEN` is above every token: it stands for the end of a list.
    for (let i = 0, j = 0; i < biased.length || j < chosen.length; ) {
      const token = Math.min(biased[i] ?? CHOSEN_TOKEN, chosen[j] ?? CHOSEN_TOKEN);
      append(token, chosen[j] === token ? CHOSEN_TOKEN : 0);
      while (biased[i] === token) i++;
      while (chosen[j] === token) j++;
    }
  }

  /** The current changes. The next `noteToken` overwrites their lists. */
  get row(): RowChanges {
    return {
      tokens: this.#tokens.subarray(0, this.#length),
      values: this.#values.subarray(0, this.#length),
      frequency: this.#frequency,
      presence: this.#presence,
    };
  }

  /** Updates the change of a token that the run has just chosen. */
  noteToken(token: number): void {
    const index = this.#indexOf(token);
    if (index === this.#length || tokenAt(this.#tokens, index) !== token) this.#insert(index);
    this.#tokens[index] = token | CHOSEN_TOKEN;
    this.#values[index] = this.#changeOf(token);
  }

  /** Index of the first token that is not below `token`. */
  #indexOf(token: number): number {
    let [from, to] = [0, this.#length];
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (tokenAt(this.#tokens, middle) < token) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  #insert(index: number): void {
    if (this.#length === this.#tokens.length) {
      const [tokens, values] = [new Uint32Array(2 * this.#length), new Float32Array(2 * this.#length)];
      tokens.set(this.#tokens);
      values.set(this.#values);
      this.#tokens = tokens;
      this.#values = values;
    }
    this.#tokens.copyWithin(index + 1, index, this.#length);
    this.#values.copyWithin(index + 1, index, this.#length);
    this.#length++;
  }
}

function tokenAt(tokens: Uint32Array, index: number): number {
  return ((tokens[index] as number) & ~CHOSEN_TOKEN) >>> 0;
}
