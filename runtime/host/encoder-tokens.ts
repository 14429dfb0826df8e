/**
 * Tokens of one inferlet's calls of encoders: those that GPU hosts have computed, and those that calls under way may still take. A host reports what
 * it has computed for all calls together. The tokens of a call that ended early are therefore known only when no other call is under way. Until then
 * the reserve of the other calls is too high, but never higher than if all calls were computed whole.
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

  begin(tokens: number): void {
    this.#asked += tokens;
    this.#underWay += tokens;
  }

  /** Ends a call, computed or not. Its host may report tokens of the last batch later. */
  end(tokens: number): void {
    this.#underWay -= tokens;
  }

  compute(tokens: number): void {
    this.#computed = Math.min(this.#asked, this.#computed + tokens);
  }
}
