/** A condition on the texts of a pattern. */
export interface Lookahead {
  readonly pattern: string;
  readonly mustHold: boolean;
}

/**
 * Divides a pattern such as `^(?!x)(?=.*y)z` into conditions and the rest, which must all hold: `^x` must not match, and `^(.*y)` and `^z` must.
 * Lookaheads elsewhere stay in the rest.
 */
export function withoutLookaheads(pattern: string): {
  readonly rest: string;
  readonly lookaheads: readonly Lookahead[];
} {
  const lookaheads: Lookahead[] = [];
  // With alternatives at the top, the lookaheads would belong to one of them.
  if (!/^\^\(\?[=!]/.test(pattern) || hasAlternatives(pattern)) return { rest: pattern, lookaheads };
  let rest = pattern.slice(1);
  while (/^\(\?[=!]/.test(rest)) {
    const end = endOfGroup(rest);
    const quantified = /^[*+?{]/.test(rest.slice(end));
    if (end === 0 || quantified) return { rest: pattern, lookaheads: [] };
    lookaheads.push({ pattern: `^(?:${rest.slice('(?='.length, end - 1)})`, mustHold: rest[2] === '=' });
    rest = rest.slice(end);
  }
  return { rest: `^${rest}`, lookaheads };
}

/** The index after the group with which a pattern begins; 0 if the group does not end. */
function endOfGroup(pattern: string): number {
  let depth = 0;
  for (const { text, index, isInClass } of partsOf(pattern)) {
    if (isInClass) continue;
    if (text === '(') depth += 1;
    if (text === ')') depth -= 1;
    if (depth === 0) return index + 1;
  }
  return 0;
}

function hasAlternatives(pattern: string): boolean {
  let depth = 0;
  for (const { text, isInClass } of partsOf(pattern)) {
    if (isInClass) continue;
    if (text === '(') depth += 1;
    else if (text === ')') depth -= 1;
    else if (text === '|' && depth === 0) return true;
  }
  return false;
}

/** A character or an escape of a pattern. */
interface Piece {
  readonly text: string;
  readonly index: number;
  readonly isInClass: boolean;
  /** True for the bracket that ends a class. */
  readonly endsClass: boolean;
}

function* partsOf(pattern: string): Generator<Piece> {
  let isInClass = false;
  for (let index = 0; index < pattern.length; ) {
    const text = pattern[index] === '\\' ? pattern.slice(index, index + 2) : (pattern[index] ?? '');
    const endsClass = isInClass && text === ']';
    if (endsClass) isInClass = false;
    yield { text, index, isInClass, endsClass };
    if (text === '[') isInClass = true;
    index += text.length;
  }
}

/** Characters that a backslash may precede with the flag `u`. */
const SYNTAX = /[\^$\\.*+?()[\]{}|/]/;

/**
 * The pattern as ECMAScript writes it with the flag `u`, which JSON Schema asks for: without that flag, lone braces and escapes of other characters
 * stand for themselves. Returns the pattern itself if it is valid, or is invalid in another way.
 */
export function unicodePattern(pattern: string): string {
  if (isValid(pattern)) return pattern;
  let rewritten = '';
  /** The index of the brace that ends the current quantifier, property or code point. */
  let closing = -1;
  let previous = '';
  for (const { text, index, isInClass, endsClass } of partsOf(pattern)) {
    const rest = pattern.slice(index);
    if (text.length === 2 && text[0] === '\\') rewritten += escapeIn(text[1] ?? '', isInClass);
    else if (isInClass || endsClass) rewritten += text;
    else if (text === '{') {
      const braces = /^\\[pPu]$/.test(previous) ? /^\{[^{}]*\}/.exec(rest) : /^\{\d+(?:,\d*)?\}/.exec(rest);
      if (braces) closing = index + braces[0].length - 1;
      rewritten += braces ? text : '\\{';
    } else if ((text === '}' && index !== closing) || text === ']') rewritten += `\\${text}`;
    else rewritten += text;
    previous = text;
  }
  return isValid(rewritten) ? rewritten : pattern;
}

/** An escape of a character, which needs no backslash unless the character has a meaning. */
function escapeIn(escaped: string, isInClass: boolean): string {
  if (/[a-zA-Z0-9]/.test(escaped) || SYNTAX.test(escaped) || (isInClass && escaped === '-')) return `\\${escaped}`;
  return isInClass ? `\\u{${(escaped.codePointAt(0) ?? 0).toString(16)}}` : escaped;
}

function isValid(pattern: string): boolean {
  try {
    new RegExp(pattern, 'u');
    return true;
  } catch {
    return false;
  }
}
