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
const ASCII_WORD = /* @__PURE__ */ Array.from({ length: 128 }, (_, code) =>
  /[A-Za-z0-9]/.test(String.fromCharCode(code)),
);
const ASCII_SPACE = /* @__PURE__ */ Array.from({ length: 128 }, (_, code) => /\s/.test(String.fromCharCode(code)));

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

/** Most texts in one call of the platform. */
const CALL_TEXTS = 256;
/** Most characters of all texts in one call together. */
const CALL_CHARACTERS = 262_144;

/** Texts of one call, and the number of those that were cut to fit. */
export interface TextPart {
  readonly texts: string[];
  readonly cut: number;
}

/**
 * Divides texts into parts that each fit in one call. Each text takes `extra` more characters of its call. A text that is too long for a call is
 * cut, since no model reads that far.
 */
export function partsOf(all: readonly string[], extra: number): TextPart[] {
  const maxLength = Math.max(0, CALL_CHARACTERS - extra);
  const batches = batchesOf(all, ({ length }) => Math.min(length, maxLength) + extra, CALL_TEXTS, CALL_CHARACTERS);
  // Without texts, one empty part remains: its call checks the name of the model.
  return (batches.length === 0 ? [[]] : batches).map((batch) => ({
    texts: batch.map((text) => text.slice(0, maxLength)),
    cut: batch.filter(({ length }) => length > maxLength).length,
  }));
}

/** Splits a list into batches of at most `mostItems` items and at most `mostSize` in all, in order. A larger item is a batch of its own. */
export function batchesOf<T>(
  items: readonly T[],
  sizeOf: (item: T) => number,
  mostItems: number,
  mostSize: number,
): T[][] {
  const batches: T[][] = [];
  let [batch, size]: [T[], number] = [[], 0];
  for (const item of items) {
    const more = sizeOf(item);
    if (batch.length === mostItems || (batch.length > 0 && size + more > mostSize)) {
      batches.push(batch);
      [batch, size] = [[], 0];
    }
    batch.push(item);
    size += more;
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}
