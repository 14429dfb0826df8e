/** Time of a batch, ms. A longer one would hold up the steps of causal models on the same device. */
const TARGET_MS = 25;
/** Tokens of the first batch, before any was measured. */
const FIRST_TOKENS = 128;
const MAX_TOKENS = 16_384;
/** Weight of the latest batch in the measured pace. */
const WEIGHT = 0.2;

/** Learns how many tokens an encoder computes in {@link TARGET_MS}. */
export class Pace {
  #msPerToken: number | undefined;

  /** Milliseconds per token of a batch, padding included; undefined before the first batch. */
  get msPerToken(): number | undefined {
    return this.#msPerToken;
  }

  /** Tokens of the next batch, padding included. */
  get maxTokens(): number {
    if (this.#msPerToken === undefined) return FIRST_TOKENS;
    return Math.max(1, Math.min(MAX_TOKENS, Math.floor(TARGET_MS / this.#msPerToken)));
  }

  /** Notes a batch of so many tokens, padding included. */
  note(tokens: number, ms: number): void {
    const now = ms / tokens;
    this.#msPerToken = this.#msPerToken === undefined ? now : this.#msPerToken + WEIGHT * (now - this.#msPerToken);
  }
}
