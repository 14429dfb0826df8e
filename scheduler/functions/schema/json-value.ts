/** Characters that JSON texts have only in escaped form. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes control characters.
const ESCAPED = /["\\\u0000-\u001f]/;

/**
 * `JSON.parse` for texts of strangers. Once the process has read an object with the key `b\`, V8 may read the key `b\u00e9` at the same place of
 * another object as `b\` (https://github.com/nodejs/node/issues/63785): one tenant could change the keys of all others.
 *
 * @param revive replaces a value; `source` is the text of a number
 * @throws SyntaxError
 */
export function jsonValue(text: string, revive?: (value: unknown, source: string | undefined) => unknown): unknown {
  const reviver =
    revive && ((_: string, value: unknown, context?: { source?: string }) => revive(value, context?.source));
  const keys = escapedKeys(text);
  if (keys.length === 0) return JSON.parse(text, reviver);
  // Throws for malformed JSON, with the position in the original text.
  JSON.parse(text);
  // Rewrite the text so that no key has an escape. A key that needs an escape gets a random name; `rename` restores its
  // own name after the parsing.
  const names = new Map<string, string>();
  const parts: string[] = [];
  let from = 0;
  for (const [start, end] of keys) {
    const name = JSON.parse(text.slice(start, end)) as string;
    parts.push(text.slice(from, start), '"', ESCAPED.test(name) ? substitute(names, name) : name, '"');
    from = end;
  }
  const value: unknown = JSON.parse(parts.join('') + text.slice(from), reviver);
  if (names.size > 0) rename(value, new Map([...names].map(([name, other]) => [other, name])));
  return value;
}

/** The substitute for a name that needs escapes. It is random, so no stranger's text contains it. */
function substitute(names: Map<string, string>, name: string): string {
  const replacement = names.get(name) ?? crypto.randomUUID();
  names.set(name, replacement);
  return replacement;
}

/** The places of the keys with escapes, from quotation mark to quotation mark. */
function escapedKeys(text: string): [start: number, end: number][] {
  const keyRanges: [number, number][] = [];
  let backslash = text.indexOf('\\');
  for (let start = text.indexOf('"'); start >= 0 && backslash >= 0; ) {
    let end = text.indexOf('"', start + 1);
    while (end >= 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
    if (end < 0) break;
    if (backslash < start) backslash = text.indexOf('\\', start);
    if (backslash >= 0 && backslash < end && isKey(text, end)) keyRanges.push([start, end + 1]);
    start = text.indexOf('"', end + 1);
  }
  return keyRanges;
}

/** True for a quotation mark behind an odd number of backslashes. */
function isEscaped(text: string, at: number): boolean {
  let firstBackslash = at;
  while (text[firstBackslash - 1] === '\\') firstBackslash--;
  return (at - firstBackslash) % 2 === 1;
}

/** True if a colon follows the string that ends at `end`. */
function isKey(text: string, end: number): boolean {
  let index = end + 1;
  while (text[index] === ' ' || text[index] === '\n' || text[index] === '\r' || text[index] === '\t') index++;
  return text[index] === ':';
}

/** Renames members at any depth, and keeps their order. */
function rename(root: unknown, names: ReadonlyMap<string, string>): void {
  const remainingValues = [root];
  for (let value = remainingValues.pop(); value !== undefined; value = remainingValues.pop()) {
    if (typeof value !== 'object' || value === null) continue;
    const entries = Object.entries(value);
    for (const [, member] of entries) if (typeof member === 'object' && member !== null) remainingValues.push(member);
    if (!entries.some(([key]) => names.has(key))) continue;
    for (const [key] of entries) Reflect.deleteProperty(value, key);
    for (const [key, member] of entries) {
      const settings = { value: member, writable: true, enumerable: true, configurable: true };
      Object.defineProperty(value, names.get(key) ?? key, settings);
    }
  }
}
