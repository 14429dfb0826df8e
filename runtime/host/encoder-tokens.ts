/**
 * Tokens of one inferlet's calls of encoders: the tokens that GPU hosts have computed, and the tokens that calls under way may still take. A
 * host reports the computed tokens of all calls together, so the tokens of a call that ended early are known only when no other call is
 * under way. Until then, the reserve of the other calls is too high, but never higher than if all calls were computed whole.
 */
export class EncoderTokens {
  #asked = 0;
  #underWay = 0;
  #computed = 0;

  /** Tokens that were computed; never more than were asked for, whatever a host reports. */
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

  /** Ends a call, computed or not. Its host may report tokens of the last batch later. */
  end(tokens: number): void {
    this.#underWay -= tokens;
  }

  /** Counts tokens that a host reports as computed. */
  compute(tokens: number): void {
    this.#computed = Math.min(this.#asked, this.#computed + tokens);
  }
}
