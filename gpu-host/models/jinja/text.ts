/** Python's operations on texts: its white space, its characters (code points) and its case. */

const SPACES = new Set(
  [0x20, 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000].concat(
    Array.from({ length: 5 }, (_, i) => 0x09 + i),
    Array.from({ length: 4 }, (_, i) => 0x1c + i),
    Array.from({ length: 11 }, (_, i) => 0x2000 + i),
  ),
);

/** Whether `str.isspace` holds for a character. All such characters have one UTF-16 unit. */
export const isSpace = (code: number): boolean => SPACES.has(code);

export function trimStart(text: string, chars?: string): string {
  const drops = dropped(chars);
  let start = 0;
  while (start < text.length) {
    const code = text.codePointAt(start) ?? 0;
    if (!drops.has(code)) break;
    start += code > 0xffff ? 2 : 1;
  }
  return text.slice(start);
}

export function trimEnd(text: string, chars?: string): string {
  const drops = dropped(chars);
  let end = text.length;
  while (end > 0) {
    const low = text.charCodeAt(end - 1);
    const pair = end > 1 && (low & 0xfc00) === 0xdc00 ? (text.codePointAt(end - 2) ?? 0) : 0;
    const code = pair > 0xffff ? pair : low;
    if (!drops.has(code)) break;
    end -= code > 0xffff ? 2 : 1;
  }
  return text.slice(0, end);
}

const dropped = (chars: string | undefined): ReadonlySet<number> =>
  chars === undefined ? SPACES : new Set(Array.from(chars, (char) => char.codePointAt(0) ?? 0));

/** Whether one index counts the same in JavaScript and in Python. */
const isPlain = (text: string): boolean => !/[\ud800-\udbff][\udc00-\udfff]/.test(text);

/** Number of code points. */
export function lengthOf(text: string): number {
  if (isPlain(text)) return text.length;
  let pairs = 0;
  for (const _ of text) pairs++;
  return pairs;
}

/** Index in code points of an index in UTF-16 units. */
export const pointIndex = (text: string, unitIndex: number): number => lengthOf(text.slice(0, unitIndex));

/** Characters of a text, indexed by code point: the text itself where this is the same. */
export const indexed = (text: string): string | readonly string[] => (isPlain(text) ? text : Array.from(text));

/** `str.split()` without a separator. @param limit number of splits, or -1 */
export function splitSpaces(text: string, limit: number): string[] {
  const parts: string[] = [];
  let rest = trimStart(text);
  while (rest !== '' && (limit < 0 || parts.length < limit)) {
    let end = 0;
    while (end < rest.length && !isSpace(rest.charCodeAt(end))) end++;
    parts.push(rest.slice(0, end));
    rest = trimStart(rest.slice(end));
  }
  // The rest of a text keeps its white space at the end.
  if (rest !== '') parts.push(rest);
  return parts;
}

/** `str.rsplit()` without a separator. */
export function splitSpacesFromEnd(text: string, limit: number): string[] {
  const parts: string[] = [];
  let rest = trimEnd(text);
  while (rest !== '' && (limit < 0 || parts.length < limit)) {
    let start = rest.length;
    while (start > 0 && !isSpace(rest.charCodeAt(start - 1))) start--;
    parts.push(rest.slice(start));
    rest = trimEnd(rest.slice(0, start));
  }
  if (rest !== '') parts.push(rest);
  return parts.reverse();
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: Python's ends of lines include separators of ASCII.
const LINE_END = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

/** `str.splitlines`. */
export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let start = 0;
  for (const { 0: end, index } of text.matchAll(LINE_END)) {
    lines.push(text.slice(start, keepEnds ? index + end.length : index));
    start = index + end.length;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

export function capitalize(text: string): string {
  const [first = ''] = text;
  return first.toUpperCase() + text.slice(first.length).toLowerCase();
}

/** `str.title`: a letter after a letter is a small one, any other a capital one. */
export const title = (text: string): string =>
  text.replace(/[\p{L}\p{M}]+/gu, (word) => {
    const [first = ''] = word;
    return first.toUpperCase() + word.slice(first.length).toLowerCase();
  });

/** The text as a Python literal, which `repr` gives. */
export function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = text.replace(/[\\'"]|(?! )[\p{C}\p{Z}]/gu, (char) => {
    if (char === '\\') return '\\\\';
    if (char === "'" || char === '"') return char === quote ? `\\${char}` : char;
    const short = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[char];
    if (short !== undefined) return short;
    const code = char.codePointAt(0) ?? 0;
    const hex = code.toString(16);
    if (code <= 0xff) return `\\x${hex.padStart(2, '0')}`;
    return code <= 0xffff ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
  });
  return quote + inner + quote;
}

/** Order of two texts by code points. */
export function compareTexts(a: string, b: string): number {
  if (a === b) return 0;
  const length = Math.min(a.length, b.length);
  let at = 0;
  while (at < length && a.charCodeAt(at) === b.charCodeAt(at)) at++;
  if (at === length) return a.length - b.length;
  // The units of a pair of surrogates lie below U+E000, and the pair's code point lies above it.
  const rank = (code: number): number => (code >= 0xd800 && code < 0xe000 ? code + 0x10000 : code);
  return rank(a.charCodeAt(at)) - rank(b.charCodeAt(at));
}
