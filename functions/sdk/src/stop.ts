/** Result of scanning a piece. */
export interface Scanned {
  /** Text that can no longer become part of a stop string. */
  readonly text: string;
  /** The stop string found, if any. The scanner discards it and the text after it. */
  readonly stop: string | undefined;
}

/**
 * Finds stop strings in text that arrives in pieces. A piece may end in the middle of a stop string, because tokens do not end where stop strings
 * do. The scanner therefore holds back the longest tail that could still become a stop string.
 */
export class StopScanner {
  readonly #stops: readonly string[];
  #held: string;

  /**
   * @param stops the stop strings; empty strings are ignored.
   * @param held text held back by an earlier scanner for the same stop strings; this scanner continues from it.
   */
  constructor(stops: readonly string[], held = '') {
    this.#held = held;
    // A lone surrogate would match in the middle of a complete character.
    this.#stops = stops.filter((stop) => stop.length > 0).map((stop) => stop.toWellFormed());
  }

  /** True when there are no stop strings, so that text needs no scan. */
  get idle(): boolean {
    return this.#stops.length === 0;
  }

  /** The held-back tail, which may be the beginning of a stop string. */
  get held(): string {
    return this.#held;
  }

  /**
   * Takes the next piece. Of several stop strings in the text, the scanner finds the one that ends first; of several that end at the same place,
   * it finds the longest. The result therefore does not depend on how the text is divided into pieces.
   */
  push(piece: string): Scanned {
    if (this.idle) return { text: piece, stop: undefined };
    const text = this.#held + piece;
    let end = Number.POSITIVE_INFINITY;
    let found: string | undefined;
    for (const stop of this.#stops) {
      const index = text.indexOf(stop);
      if (index < 0) continue;
      const stopEnd = index + stop.length;
      if (stopEnd > end || (stopEnd === end && stop.length < (found?.length ?? 0))) continue;
      end = stopEnd;
      found = stop;
    }
    if (found !== undefined) {
      this.#held = '';
      return { text: text.slice(0, end - found.length), stop: found };
    }
    const keep = this.#undecided(text);
    this.#held = text.slice(text.length - keep);
    return { text: text.slice(0, text.length - keep), stop: undefined };
  }

  /** Returns the held-back text at the end of the input. */
  finish(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }

  /** Length of the longest tail of `text` that is the beginning of a stop string. */
  #undecided(text: string): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
        if (text.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}
