/** The last part of a text that arrives in pieces. */
export class Tail {
  readonly #maxCharacters: number;
  #text = '';

  /** @param maxCharacters number of kept characters; up to twice as many are in memory, so that few pieces cause a copy */
  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters;
  }

  add(piece: string): void {
    this.#text += piece;
    if (this.#text.length > 2 * this.#maxCharacters) this.#text = this.text;
  }

  clear(): void {
    this.#text = '';
  }

  get text(): string {
    return this.#text.slice(-this.#maxCharacters);
  }
}
