import { attempt, Detokenizer } from '@pie/inferlet/raw';

/** The place of a token's text within a longer text. */
export interface Place {
  /** Number of characters before the token. */
  readonly at: number;
  /** Text that the token adds; empty for a part of a character that a later token completes. */
  readonly adds: string;
}

/** Computes the places of consecutive tokens in their text. */
export class Places implements Disposable {
  readonly #detokenizer: Detokenizer;
  #length = 0;

  /** @param before tokens that the text continues; without them, tokenizers may drop the first space */
  constructor(model: string, before: readonly number[] = []) {
    this.#detokenizer = new Detokenizer(model);
    // The parts of an image have no ids.
    attempt(() => this.#detokenizer.push(before.slice(-PRIMING_TOKENS).filter((token) => token >= 0)));
  }

  next(token: number): Place {
    const at = this.#length;
    const adds = attempt(() => this.#detokenizer.push([token]));
    this.#length += adds.length;
    return { at, adds };
  }

  [Symbol.dispose](): void {
    this.#detokenizer.drop();
  }
}

/** Tokens to decode before the first one: more than the bytes of the longest character, each of which may take a token. */
const PRIMING_TOKENS = 8;
