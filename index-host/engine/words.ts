/** Most words of a query that count. */
const MAX_WORDS = 16;
const WORD = /[\p{L}\p{N}\p{Co}]+/gu;

/** Expressions of FTS5 for the words of a text, each of which is a plain word, whatever the text's author wrote. */
export function wordsOf(text: string): string[] {
  const words = new Set<string>();
  for (const [word] of text.matchAll(WORD)) {
    words.add(`"${word.toLowerCase()}"`);
    if (words.size === MAX_WORDS) break;
  }
  return [...words];
}

/** A word, and the number of entries that have it, up to a bound. */
export interface Counted {
  readonly word: string;
  readonly entries: number;
}

/**
 * The words to search for, whose entries are at most `most` together: the rare ones, which tell entries apart. Without any, the rarest one,
 * though too many entries have it. Words that no entry has are left out.
 */
export function chosenWords(counted: readonly Counted[], most: number): string[] {
  const known = counted.filter(({ entries }) => entries > 0).sort((a, b) => a.entries - b.entries);
  const chosen: string[] = [];
  let sum = 0;
  for (const { word, entries } of known) {
    sum += entries;
    if (sum > most && chosen.length > 0) break;
    chosen.push(word);
  }
  return chosen;
}
