/** Most characters that the platform tokenizes in one call. */
export const MAX_CALL_CHARACTERS = 32_768;
/** Most characters of a part. Leaves room for the marker that a continuation may need in front. */
const MAX_PART = MAX_CALL_CHARACTERS - 8;
/** Characters on each side of a border that are tokenized both together and separately; a border affects far fewer. */
const WINDOW = 400;
/** Most borders of one kind to try. */
const MAX_TRIES = 16;

type Tokenize = (part: string) => readonly number[];

/** Kinds of borders at which a tokenizer probably ends a word regardless of the following text; best kinds first. */
const BORDERS: readonly ((before: string, after: string) => boolean)[] = [
  (before, after) => before === '\n' && !isSpace(after),
  (before, after) => !isSpace(before) && after === ' ',
  (before, after) => isWord(before) !== isWord(after) && !isSpace(before),
];

const isWord = (character: string): boolean => /[\p{L}\p{N}]/u.test(character);
const isSpace = (character: string): boolean => /\s/.test(character);

/**
 * Tokenizes a text that is too long for one call, with the same tokens as for the whole text. It cuts the text only where tokenizing both
 * sides shows that the cut changes no token. Without such a place, the part stays too long and the platform's call throws.
 *
 * @param whole tokenizes the beginning of a text
 * @param rest tokenizes the continuation of a text
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
