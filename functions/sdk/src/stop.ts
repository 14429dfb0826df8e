/** What a scanner lets through. */
export interface Scanned {
  /** Text that can no longer become part of a stop string. */
  readonly text: string;
  /** The stop string that was found; everything from it on is dropped. */
  readonly stop: string | undefined;
}

/**
 * Finds stop strings in text that arrives in pieces. A piece may end in the middle of a stop string (token borders know nothing of
 * them), so the longest tail that could still become one is held back until it is decided.
 */
export class StopScanner {
  readonly #stops: readonly string[];
  #held: string;

  /**
   * @param stops what to look for; empty strings are ignored.
   * @param held what another scanner for the same held back last; this one goes on from there.
   */
  constructor(stops: readonly string[], held = '') {
    this.#held = held;
    // Half a character would be found in the middle of a whole one.
    this.#stops = stops.filter((stop) => stop.length > 0).map((stop) => stop.toWellFormed());
  }

  /** Whether there is nothing to look for, so that text may pass by. */
  get idle(): boolean {
    return this.#stops.length === 0;
  }

  /** End of the text that may be the beginning of a stop string. */
  get held(): string {
    return this.#held;
  }

  /** Takes the next piece. Of several stop strings the one that begins first counts, and of those the longest. */
  push(piece: string): Scanned {
    if (this.idle) return { text: piece, stop: undefined };
    const text = this.#held + piece;
    let at = -1;
    let found: string | undefined;
    for (const stop of this.#stops) {
      const index = text.indexOf(stop);
      if (index < 0) continue;
      if (at < 0 || index < at || (index === at && stop.length > (found?.length ?? 0))) {
        at = index;
        found = stop;
      }
    }
    if (found !== undefined) {
      this.#held = '';
      return { text: text.slice(0, at), stop: found };
    }
    const keep = this.#undecided(text);
    this.#held = text.slice(text.length - keep);
    return { text: text.slice(0, text.length - keep), stop: undefined };
  }

  /** The text held back, once nothing more can come. */
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
