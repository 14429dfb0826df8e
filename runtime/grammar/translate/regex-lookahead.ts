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
  for (const { text, index, isInClass, endsClass } of partsOf(pattern)) {
    const [, escaped] = text.length > 1 && text[0] === '\\' ? text : [];
    if (escaped !== undefined) {
      const isKnown = /[a-zA-Z0-9]/.test(escaped) || SYNTAX.test(escaped) || (isInClass && escaped === '-');
      rewritten += isKnown ? text : isInClass ? `\\u{${escaped.charCodeAt(0).toString(16)}}` : escaped;
    } else if (!isInClass && text === '{') rewritten += isQuantifier(pattern.slice(index), rewritten) ? text : '\\{';
    else if (!isInClass && text === '}') rewritten += endsQuantifier(pattern.slice(0, index + 1)) ? text : '\\}';
    else if (!isInClass && text === ']' && !endsClass) rewritten += '\\]';
    else rewritten += text;
  }
  return isValid(rewritten) ? rewritten : pattern;
}

function isQuantifier(rest: string, before: string): boolean {
  return before !== '' && /^\{\d+(,\d*)?\}/.test(rest);
}

function endsQuantifier(before: string): boolean {
  return /(?:[^{]\{\d+(?:,\d*)?|\\[pPu]\{[^{}]*)\}$/.test(before);
}

function isValid(pattern: string): boolean {
  try {
    new RegExp(pattern, 'u');
    return true;
  } catch {
    return false;
  }
}
