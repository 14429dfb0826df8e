/** Unicode code points from `from` to `to`, both included. */
export type Range = readonly [from: number, to: number];

/** The last Unicode code point. */
const LAST = 0x10ffff;
/** Halves of UTF-16 pairs. They are not characters, and UTF-8 cannot encode them. */
const SURROGATES: Range = [0xd800, 0xdfff];

/** A set of characters: ranges that are sorted, disjoint and without surrogates. */
export type Characters = readonly Range[];

/** The set of the characters in some ranges, which may overlap and have any order. */
export function characters(...ranges: readonly Range[]): Characters {
  const sorted = ranges.filter(([from, to]) => from <= to).sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const [from, to] of sorted) {
    const lastRange = merged.at(-1);
    if (lastRange && from <= lastRange[1] + 1) lastRange[1] = Math.max(lastRange[1], to);
    else merged.push([from, to]);
  }
  return merged.flatMap((range) => without(range, SURROGATES));
}

/** Every character that is not in `set`. */
export function complement(set: Characters): Characters {
  const gaps: Range[] = [];
  let gapStart = 0;
  for (const [from, to] of set) {
    if (from > gapStart) gaps.push([gapStart, from - 1]);
    gapStart = to + 1;
  }
  if (gapStart <= LAST) gaps.push([gapStart, LAST]);
  return gaps.flatMap((range) => without(range, SURROGATES));
}

export function union(...sets: readonly Characters[]): Characters {
  return characters(...sets.flat());
}

export function intersection(a: Characters, b: Characters): Characters {
  const common: Range[] = [];
  for (let i = 0, j = 0; ; ) {
    const [mine, theirs] = [a[i], b[j]];
    if (!mine || !theirs) return common;
    const [from, to] = [Math.max(mine[0], theirs[0]), Math.min(mine[1], theirs[1])];
    if (from <= to) common.push([from, to]);
    if (mine[1] < theirs[1]) i += 1;
    else j += 1;
  }
}

/** The set of the characters in `text`. */
export function charactersOf(text: string): Characters {
  return characters(...[...text].map((character): Range => [codePoint(character), codePoint(character)]));
}

/** @param character one character, of one or two UTF-16 units */
export function codePoint(character: string): number {
  return character.codePointAt(0) ?? 0;
}

/** The characters that a dot matches in a JavaScript regular expression: all but line ends. */
export const NO_LINE_END = complement(charactersOf('\n\r\u2028\u2029'));
export const ANY = complement([]);
export const DIGITS = characters([0x30, 0x39]);
/** `\w` of JavaScript: digits, capital letters, the underscore and small letters. */
export const WORD = characters([0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]);
/** `\s` of JavaScript. */
export const SPACE = characters(
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
);

/** Sets of characters by the name of their property. V8 knows few hundred of them. */
const properties = new Map<string, Characters | undefined>();
let allCharacters = '';

/** The characters with a property of Unicode, such as `L` or `Script=Greek`; undefined if there is no such property. */
export function charactersWith(property: string): Characters | undefined {
  if (properties.has(property)) return properties.get(property);
  let runs: RegExp | undefined;
  try {
    runs = new RegExp(`\\p{${property}}+`, 'gu');
  } catch {
    return undefined;
  }
  allCharacters ||= ANY.map(([from, to]) => {
    const codes = Array.from({ length: to - from + 1 }, (_, offset) => String.fromCodePoint(from + offset));
    return codes.join('');
  }).join('');
  const set = characters(
    ...Array.from(allCharacters.matchAll(runs), ([run]): Range => [codePoint(run), codePoint([...run].at(-1) ?? '')]),
  );
  properties.set(property, set);
  return set;
}

function without([from, to]: Range, [first, last]: Range): Range[] {
  if (to < first || from > last) return [[from, to]];
  const remaining: Range[] = [];
  if (from < first) remaining.push([from, first - 1]);
  if (to > last) remaining.push([last + 1, to]);
  return remaining;
}
