import { attempt, Detokenizer } from '@pie/inferlet/raw';

/** Where a token's text is in the text that it is part of. */
export interface Place {
  /** Characters before it. */
  readonly at: number;
  /** What it adds: nothing, when it is a part of a character that a later one completes. */
  readonly adds: string;
}

/** Tells where tokens are in the text that they make, one after the other. */
export class Places implements Disposable {
  readonly #detokenizer: Detokenizer;
  #length = 0;

  /** @param before tokens that the text goes on from; at its very beginning tokenizers drop a space */
  constructor(model: string, before: readonly number[] = []) {
    this.#detokenizer = new Detokenizer(model);
    attempt(() => this.#detokenizer.push(before.slice(-PRIMING_TOKENS)));
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

/** More than the longest character has bytes. */
const PRIMING_TOKENS = 8;
