/** The last part of a text that arrives in pieces. */
export class Tail {
  readonly #mostCharacters: number;
  #text = '';

  /** @param mostCharacters number of kept characters; up to twice as many are in memory, so that few pieces cause a copy */
  constructor(mostCharacters: number) {
    this.#mostCharacters = mostCharacters;
  }

  add(piece: string): void {
    this.#text += piece;
    if (this.#text.length > 2 * this.#mostCharacters) this.#text = this.text;
  }

  clear(): void {
    this.#text = '';
  }

  get text(): string {
    return this.#text.slice(-this.#mostCharacters);
  }
}
