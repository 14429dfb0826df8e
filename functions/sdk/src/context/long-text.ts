/** Most characters that the platform tokenizes in one call. */
const MAX_CALL_CHARACTERS = 131_072;
/** Characters of a text that is tokenized in one piece. A longer call would hold up the texts of other inferlets. */
export const MAX_PART_CHARACTERS = 32_768;
/** Room in a call for the marker that a continuation may need in front. */
const MARKER_ROOM = 8;
/** Most characters of a part that has a border where it may end. */
const MAX_PART = MAX_PART_CHARACTERS - MARKER_ROOM;
/** Fewest characters of a part, so that a text with few borders takes few calls. */
const MIN_PART = 1024;
/** Characters on each side of a border that are tokenized both together and separately; a border affects far fewer. */
const WINDOW = 400;
/** Most borders of one kind to try. */
const MAX_TRIES = 16;

type Tokenize = (part: string) => readonly number[];

/** Kinds of borders at which a tokenizer probably ends a word regardless of the following text; best kinds first. */
const BORDERS: readonly ((before: string, after: string) => boolean)[] = [
  (before, after) => before === '\n' && !isSpace(after),
  (before, after) => after === ' ' && !isSpace(before),
  (before, after) => isWord(before) !== isWord(after) && !isSpace(before),
];

/** Kinds of ASCII characters by code: a text without borders has 400,000 places to look at, and a regular expression takes ten times as long. */
const ASCII_WORD = Array.from({ length: 128 }, (_, code) => /[A-Za-z0-9]/.test(String.fromCharCode(code)));
const ASCII_SPACE = Array.from({ length: 128 }, (_, code) => /\s/.test(String.fromCharCode(code)));

const isWord = (character: string): boolean => ASCII_WORD[character.charCodeAt(0)] ?? /[\p{L}\p{N}]/u.test(character);
const isSpace = (character: string): boolean => ASCII_SPACE[character.charCodeAt(0)] ?? /\s/.test(character);

/**
 * Tokenizes a long text in parts, with the same tokens as for the whole text. It cuts the text only where tokenizing both sides shows that the cut
 * changes no token. A part without such a place, such as a word of base64, is tokenized in one call, which throws beyond 131,072 characters.
 *
 * @param whole tokenizes the beginning of a text
 * @param rest tokenizes the continuation of a text
 */
export function tokenizeLong(content: string, whole: Tokenize, rest: Tokenize): number[] {
  const tokens: number[] = [];
  for (let from = 0; from < content.length; ) {
    const to = content.length - from <= MAX_PART ? content.length : partEnd(content, from, whole, rest);
    const part = content.slice(from, to);
    for (const token of from === 0 ? whole(part) : rest(part)) tokens.push(token);
    from = to;
  }
  return tokens;
}

/** The end of the part that begins at `from`: a border, best in its usual second half; the end of the text when none is found. */
function partEnd(content: string, from: number, whole: Tokenize, rest: Tokenize): number {
  const borderIn = (first: number, last: number): number | undefined => {
    const step = Math.sign(last - first);
    for (const isBorder of BORDERS) {
      let tries = 0;
      for (let at = first; at !== last && tries < MAX_TRIES; at += step) {
        if (!isBorder(content.charAt(at - 1), content.charAt(at))) continue;
        if (changesNothing(content, at, whole, rest)) return at;
        tries++;
      }
    }
    return undefined;
  };
  const [least, half, usual] = [from + MIN_PART, from + MAX_PART / 2, from + MAX_PART];
  const longest = Math.min(content.length, from + MAX_CALL_CHARACTERS - MARKER_ROOM);
  return borderIn(usual, half) ?? borderIn(half, least) ?? borderIn(usual, longest) ?? content.length;
}

function changesNothing(content: string, at: number, whole: Tokenize, rest: Tokenize): boolean {
  const [before, after] = [content.slice(at - WINDOW, at), content.slice(at, at + WINDOW)];
  const parts = [...whole(before), ...rest(after)];
  const together = whole(before + after);
  return parts.length === together.length && parts.every((token, i) => token === together[i]);
}
