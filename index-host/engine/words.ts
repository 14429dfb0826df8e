/** Most words of a query: SQLite reads the list of entries of each. */
const MAX_WORDS = 16;
const WORD = /[\p{L}\p{N}\p{Co}]+/gu;

/**
 * The expression of FTS5 for a text that a guest wrote: any of its words. Null when it has none. Words are quoted, so no text can use the
 * operators of FTS5.
 */
export function wordsExpression(text: string): string | null {
  const words = new Set<string>();
  for (const [word] of text.matchAll(WORD)) {
    words.add(word.toLowerCase());
    if (words.size === MAX_WORDS) break;
  }
  return words.size === 0 ? null : [...words].map((word) => `"${word}"`).join(' OR ');
}
