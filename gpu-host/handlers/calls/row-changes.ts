import { CHOSEN_TOKEN, type RowChanges } from '../../backends/backend.ts';

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
