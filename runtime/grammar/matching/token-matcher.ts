import type { GrammarMatcher } from '@mlc-ai/web-xgrammar';
import type { MatchStatus } from '../messages.ts';
import { invalid } from '../translate/error.ts';
import type { Vocabulary } from '../vocabulary.ts';

/** Where a text of tokens stands in a grammar. */
export class TokenMatcher {
  readonly #handle: GrammarMatcher;
  readonly #vocabulary: Vocabulary;
  #accepted = 0;
  /** The library's mask of the present place, if it was asked for: one bit a token, the added end at the end. */
  #seen: Uint32Array | undefined;

  constructor(handle: GrammarMatcher, vocabulary: Vocabulary) {
    this.#handle = handle;
    this.#vocabulary = vocabulary;
  }

  /** Takes all of `tokens`, or none of them and says false. */
  accept(tokens: Uint32Array): boolean {
    const outside = tokens.find((token) => token >= this.#vocabulary.size);
    if (outside !== undefined) {
      throw invalid(
        `token ${outside} is outside the vocabulary of ${this.#vocabulary.size}; pass ids of the grammar's model`,
      );
    }
    this.#seen = undefined;
    for (const [taken, token] of tokens.entries()) {
      if (!this.#handle.isTerminated() && this.#handle.acceptToken(token)) continue;
      if (taken > 0) this.#handle.rollBack(taken);
      return false;
    }
    this.#accepted += tokens.length;
    return true;
  }

  /** Takes the last `tokens` back. */
  rollback(tokens: number): undefined {
    if (tokens > this.#accepted) {
      throw invalid(`${tokens} tokens cannot be taken back: ${this.#accepted} were accepted`);
    }
    if (tokens === 0) return;
    this.#seen = undefined;
    this.#handle.rollBack(tokens);
    this.#accepted -= tokens;
  }

  /** Tokens that may come next: bit `t % 32` of word `t / 32`, for the model's tokens only. */
  async mask(): Promise<Uint32Array<ArrayBuffer>> {
    const { size, eos } = this.#vocabulary;
    const mask = new Uint32Array(Math.ceil(size / 32));
    if (this.#handle.isTerminated()) {
      for (const token of eos) set(mask, token);
      return mask;
    }
    const seen = await this.#look();
    mask.set(seen.subarray(0, mask.length));
    if (size % 32 !== 0) mask[mask.length - 1] = (mask[mask.length - 1] ?? 0) & ((1 << (size % 32)) - 1);
    if (!has(seen, size) && mask.every(isZero)) {
      throw invalid(
        "no token of the model goes on here: its vocabulary lacks the grammar's next character; take tokens back",
      );
    }
    return mask;
  }

  async status(): Promise<MatchStatus> {
    if (this.#handle.isTerminated()) return { mayEnd: true, mustEnd: true };
    const { size, eos } = this.#vocabulary;
    const seen = await this.#look();
    if (!has(seen, size)) return { mayEnd: false, mustEnd: false };
    const rest = seen.slice();
    for (const token of [...eos, size]) clear(rest, token);
    rest[rest.length - 1] = (rest[rest.length - 1] ?? 0) & (2 ** ((size % 32) + 1) - 1);
    return { mayEnd: true, mustEnd: rest.every(isZero) };
  }

  dispose(): void {
    this.#handle.dispose();
  }

  async #look(): Promise<Uint32Array> {
    if (this.#seen) return this.#seen;
    const { buffer } = await this.#handle.getNextTokenBitmask();
    this.#seen = new Uint32Array(buffer);
    return this.#seen;
  }
}

function isZero(word: number): boolean {
  return word === 0;
}

function has(mask: Uint32Array, token: number): boolean {
  return (((mask[token >>> 5] ?? 0) >>> (token & 31)) & 1) === 1;
}

function set(mask: Uint32Array, token: number): void {
  mask[token >>> 5] = (mask[token >>> 5] ?? 0) | (1 << (token & 31));
}

function clear(mask: Uint32Array, token: number): void {
  mask[token >>> 5] = (mask[token >>> 5] ?? 0) & ~(1 << (token & 31));
}
