/** Characters that the platform tokenizes in one call. */
export const MAX_CALL_CHARACTERS = 32_768;
/** A continuation may need a character in front. */
const MAX_PART = MAX_CALL_CHARACTERS - 8;
/** Characters on each side of a border that are tokenized with it and without: far more than a border can be felt. */
const WINDOW = 400;
/** Borders of one kind that are tried. */
const MAX_TRIES = 16;

type Tokenize = (part: string) => readonly number[];

/** Where a tokenizer is likely to end a word whatever follows; the best kinds come first. */
const BORDERS: readonly ((before: string, after: string) => boolean)[] = [
  (before, after) => before === '\n' && !isSpace(after),
  (before, after) => !isSpace(before) && after === ' ',
  (before, after) => isWord(before) !== isWord(after) && !isSpace(before),
];

const isWord = (character: string): boolean => /[\p{L}\p{N}]/u.test(character);
const isSpace = (character: string): boolean => /\s/.test(character);

/**
 * Tokens of a text that is too long for one call, the same as those of the whole: it is cut where a look at both sides shows that a cut
 * changes nothing. Where no such place is found, it is left too long, and the platform says so.
 *
 * @param whole tokens of a text that begins there
 * @param rest tokens of a text that goes on from another
 */
export function tokenizeLong(content: string, whole: Tokenize, rest: Tokenize): number[] {
  const tokens: number[] = [];
  for (let from = 0; from < content.length; ) {
    const to = content.length - from <= MAX_PART ? content.length : borderBefore(content, from, whole, rest);
    const part = content.slice(from, to);
    for (const token of from === 0 ? whole(part) : rest(part)) tokens.push(token);
    from = to;
  }
  return tokens;
}

/** A border in the second half of the longest part that begins at `from`; the end of the text when none is found. */
function borderBefore(content: string, from: number, whole: Tokenize, rest: Tokenize): number {
  for (const isBorder of BORDERS) {
    let tries = 0;
    for (let at = from + MAX_PART; at > from + MAX_PART / 2 && tries < MAX_TRIES; at--) {
      if (!isBorder(content.charAt(at - 1), content.charAt(at))) continue;
      if (changesNothing(content, at, whole, rest)) return at;
      tries++;
    }
  }
  return content.length;
}

function changesNothing(content: string, at: number, whole: Tokenize, rest: Tokenize): boolean {
  const [before, after] = [content.slice(at - WINDOW, at), content.slice(at, at + WINDOW)];
  const parts = [...whole(before), ...rest(after)];
  const together = whole(before + after);
  return parts.length === together.length && parts.every((token, i) => token === together[i]);
}
