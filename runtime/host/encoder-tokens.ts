/**
 * Tokens of one inferlet's calls of encoders: the tokens that GPU hosts have computed, and the tokens that calls under way may still take. A
 * host reports one sum for the computed tokens of all calls, so the share of a call that ended early stays unknown while other calls are under
 * way. Until they end, `reserved` may be too high. The sum of `computed` and `reserved` still never exceeds the tokens of all calls.
 */
export class EncoderTokens {
  #asked = 0;
  #underWay = 0;
  #computed = 0;

  /** Tokens that were computed: as reported by the hosts, but never more than the tokens of all calls. */
  get computed(): number {
    return this.#computed;
  }

  /** Maximum tokens that the calls under way may still take. */
  get reserved(): number {
    return Math.min(this.#underWay, this.#asked - this.#computed);
  }

  /** Begins a call for `tokens` tokens. */
  begin(tokens: number): void {
    this.#asked += tokens;
    this.#underWay += tokens;
  }

  /** Ends a call, whose computed tokens the host has reported. */
  end(tokens: number): void {
    this.#underWay -= tokens;
  }

  /** Counts tokens that a host reports as computed. */
  compute(tokens: number): void {
    this.#computed = Math.min(this.#asked, this.#computed + tokens);
  }
}
