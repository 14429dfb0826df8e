import {
  ANY,
  type Characters,
  characters,
  charactersOf,
  charactersWith,
  codePoint,
  complement,
  DIGITS,
  NO_LINE_END,
  SPACE,
  union,
  WORD,
} from './characters.ts';
import { choice, type Expression, invalid, oneOf, quote, repeat, sequence, text, tooLarge } from './expression.ts';

/** One side of a `|` at the top of a regular expression. */
interface Alternative {
  readonly expression: Expression;
  /** True when `^` anchors the start. */
  readonly fromStart: boolean;
  /** True when `$` anchors the end. */
  readonly toEnd: boolean;
}

/** One part of a pattern, and whether its ends are anchored in all, some or none of its alternatives. */
interface Part {
  readonly expression: Expression;
  readonly fromStart: Anchoring;
  readonly toEnd: Anchoring;
}

type Anchoring = 'all' | 'some' | 'none';

const MAX_DEPTH = 100;
const MAX_REPETITIONS = 10_000;

/** An expression for the texts that a pattern matches as a whole. @throws GrammarError */
export function regex(pattern: string): Expression {
  return choice(parseRegex(pattern).map(({ expression }) => expression));
}

/** An expression for the texts in which a pattern is found, which is the meaning of 'pattern' in JSON schemas. @throws GrammarError */
export function regexSearch(pattern: string): Expression {
  const anything = repeat(oneOf(ANY), 0, Number.POSITIVE_INFINITY);
  return choice(
    parseRegex(pattern).map(({ expression, fromStart, toEnd }) =>
      sequence([...(fromStart ? [] : [anything]), expression, ...(toEnd ? [] : [anything])]),
    ),
  );
}

/**
 * Reads a regular expression in JavaScript's syntax over code points, without flags: literals, classes, groups, alternatives, quantifiers
 * (lazy ones are like greedy ones: the language is the same), and anchors at the ends. The validator of schemas parses patterns on its own (`parsePattern`
 * of the scheduler): it leaves classes to V8, and matches word boundaries and anchors anywhere.
 *
 * @throws GrammarError for constructs that a grammar cannot express (lookaround, backreferences, word boundaries) and for mistakes
 */
export function parseRegex(pattern: string): readonly Alternative[] {
  if (!pattern.isWellFormed())
    throw invalid(`regular expression ${quote(pattern)}: half a UTF-16 pair is not a character; remove it`);
  const parser = new Parser(pattern);
  const parts = parser.alternatives(0, true);
  parser.expectEnd();
  return parts.map(({ expression, fromStart, toEnd }) => {
    if (fromStart === 'some' || toEnd === 'some') {
      throw parser.error(
        'an anchor holds only some alternatives of a group',
        'write the alternatives at the top level',
      );
    }
    return { expression, fromStart: fromStart === 'all', toEnd: toEnd === 'all' };
  });
}

class Parser {
  readonly #pattern: string;
  readonly #characters: readonly string[];
  #at = 0;

  constructor(pattern: string) {
    this.#pattern = pattern;
    this.#characters = [...pattern];
  }

  error(what: string, advice: string): Error {
    return invalid(`regular expression ${quote(this.#pattern)}, character ${this.#at}: ${what}; ${advice}`);
  }

  expectEnd(): void {
    if (this.#peek() !== undefined) throw this.error('a ) closes nothing', 'write \\) for the character');
  }

  /** @param leading true if the alternatives may begin the pattern, so that a `^` may begin them */
  alternatives(depth: number, leading: boolean): Part[] {
    if (depth > MAX_DEPTH)
      throw tooLarge(`regular expression: groups are nested more than ${MAX_DEPTH} deep; use fewer`);
    const parts = [this.#sequence(depth, leading)];
    while (this.#take('|')) parts.push(this.#sequence(depth, leading));
    return parts;
  }

  #sequence(depth: number, leading: boolean): Part {
    const parts: Expression[] = [];
    let fromStart: Anchoring = 'none';
    let toEnd: Anchoring = 'none';
    for (let next = this.#peek(); next !== undefined && next !== '|' && next !== ')'; next = this.#peek()) {
      if (this.#take('$')) {
        toEnd = 'all';
        continue;
      }
      if (toEnd !== 'none') throw this.error('something follows a $', 'a $ can only stand at the end');
      const first = leading && parts.length === 0;
      if (this.#take('^')) {
        if (!first) throw this.error('a ^ in the middle', 'a ^ can only stand at the beginning');
        fromStart = 'all';
        continue;
      }
      const part = this.#quantified(depth, first);
      parts.push(part.expression);
      if (fromStart === 'none') fromStart = part.fromStart;
      toEnd = part.toEnd;
    }
    return { expression: sequence(parts), fromStart, toEnd };
  }

  #quantified(depth: number, leading: boolean): Part {
    const part = this.#atom(depth, leading);
    const bounds = this.#quantifier();
    if (!bounds) return part;
    // A `?` makes the quantifier lazy, which leaves the language as it is.
    this.#take('?');
    if (part.fromStart !== 'none' || part.toEnd !== 'none') {
      throw this.error('a repeated group holds an anchor', 'put ^ and $ outside of it');
    }
    if ('*+?{'.includes(this.#peek() ?? ' ') && this.#quantifier()) {
      throw this.error('two quantifiers in a row', 'put the first into a group');
    }
    return { ...part, expression: repeat(part.expression, bounds.min, bounds.max) };
  }

  /** Takes a quantifier; a brace that begins no quantifier stays a character. */
  #quantifier(): { min: number; max: number } | undefined {
    if (this.#take('*')) return { min: 0, max: Number.POSITIVE_INFINITY };
    if (this.#take('+')) return { min: 1, max: Number.POSITIVE_INFINITY };
    if (this.#take('?')) return { min: 0, max: 1 };
    if (this.#characters[this.#at] !== '{') return undefined;
    let end = this.#at + 1;
    while (/^[\d,]$/.test(this.#characters[end] ?? '')) end += 1;
    const braces = /^\{(\d+)(,?)(\d*)\}$/.exec(this.#characters.slice(this.#at, end + 1).join(''));
    if (!braces) return undefined;
    this.#at += braces[0].length;
    const min = Number(braces[1]);
    const writtenMax = braces[3] === '' ? Number.POSITIVE_INFINITY : Number(braces[3]);
    const max = braces[2] === '' ? min : writtenMax;
    if (max < min) throw this.error(`the range ${quote(braces[0])} is empty`, 'write the smaller number first');
    if (min > MAX_REPETITIONS || (max > MAX_REPETITIONS && braces[3] !== '')) {
      throw tooLarge(
        `regular expression: ${quote(braces[0])} repeats more than ${MAX_REPETITIONS} times; leave the upper bound out`,
      );
    }
    return { min, max };
  }

  #atom(depth: number, leading: boolean): Part {
    if (this.#take('(')) return this.#group(depth, leading);
    return { expression: this.#single(), fromStart: 'none', toEnd: 'none' };
  }

  #single(): Expression {
    const character = this.#next();
    switch (character) {
      case '.':
        return oneOf(NO_LINE_END);
      case '[':
        return oneOf(this.#class());
      case '\\':
        return this.#escape();
      case '*':
      case '+':
      case '?':
        throw this.error(`${character} repeats nothing`, `write \\${character} for the character`);
      default:
        return text(character);
    }
  }

  #group(depth: number, leading: boolean): Part {
    if (this.#take('?')) {
      const kind = this.#next();
      // `(?<name>` begins a group, and `(?<=` or `(?<!` begins a lookbehind.
      if (kind === '<' && !'=!'.includes(this.#peek() ?? '=')) {
        while (this.#peek() !== undefined && !this.#take('>')) this.#at += 1;
      } else if (kind !== ':') {
        throw this.error('lookaround and flags have no counterpart in a grammar', 'use (…), (?:…) or (?<name>…)');
      }
    }
    const parts = this.alternatives(depth + 1, leading);
    if (!this.#take(')')) throw this.error('a group is not closed', 'add a )');
    return {
      expression: choice(parts.map(({ expression }) => expression)),
      fromStart: combinedAnchoring(parts.map(({ fromStart }) => fromStart)),
      toEnd: combinedAnchoring(parts.map(({ toEnd }) => toEnd)),
    };
  }

  /** Reads a class after its opening bracket. */
  #class(): Characters {
    const negated = this.#take('^');
    const sets: Characters[] = [];
    while (!this.#take(']')) {
      const from = this.#classItem();
      if (this.#peek() === '-' && this.#characters[this.#at + 1] !== ']') {
        this.#at += 1;
        const to = this.#classItem();
        const [first, last] = [single(from), single(to)];
        if (first === undefined || last === undefined || first > last) {
          throw this.error('this range of characters is empty', 'write the smaller character first, or \\- for a -');
        }
        sets.push(characters([first, last]));
      } else {
        sets.push(from);
      }
    }
    return negated ? complement(union(...sets)) : union(...sets);
  }

  #classItem(): Characters {
    const character = this.#next();
    if (character !== '\\') return charactersOf(character);
    if (this.#take('b')) return charactersOf('\b');
    if (this.#take('-')) return charactersOf('-');
    const escaped = this.#escape();
    if (escaped.kind === 'class') return escaped.set;
    return escaped.kind === 'text' ? charactersOf(escaped.text) : [];
  }

  /** Reads an escape after its backslash. */
  #escape(): Expression {
    const character = this.#next();
    const simple = CONTROLS.get(character);
    if (simple !== undefined) return text(simple);
    const set = SETS.get(character);
    if (set) return oneOf(set);
    if (character === 'p' || character === 'P') return oneOf(this.#property(character === 'P'));
    if (character === 'x') return text(this.#hex(2));
    if (character === 'u') return text(this.#take('{') ? this.#braced() : this.#hex(4));
    // A control character: `\cJ` is the line feed, 10.
    if (character === 'c' && /[A-Za-z]/.test(this.#peek() ?? ''))
      return text(String.fromCharCode(codePoint(this.#next()) % 32));
    if (/[a-zA-Z1-9]/.test(character)) {
      throw this.error(`\\${character} has no counterpart in a grammar`, 'write out the characters that you mean');
    }
    return text(character);
  }

  /** Reads the name of a property after `\\p`. */
  #property(isNegated: boolean): Characters {
    const end = this.#characters.indexOf('}', this.#at);
    const name = this.#characters.slice(this.#at + 1, end < 0 ? this.#at : end).join('');
    const set = this.#peek() === '{' && /^[\w=]+$/.test(name) ? charactersWith(name) : undefined;
    if (!set) throw this.error('\\p names no property of characters', 'write it as in \\p{L} or \\p{Script=Greek}');
    this.#at = end + 1;
    return isNegated ? complement(set) : set;
  }

  #hex(digits: number): string {
    const code = this.#characters.slice(this.#at, this.#at + digits).join('');
    if (code.length !== digits || !/^[0-9a-fA-F]+$/.test(code)) {
      throw this.error(`an escape needs ${digits} hexadecimal digits here`, 'write them, as in \\x0a or \\u000a');
    }
    this.#at += digits;
    const value = Number.parseInt(code, 16);
    return this.#character(value);
  }

  #braced(): string {
    const end = this.#characters.indexOf('}', this.#at);
    const code = this.#characters.slice(this.#at, end < 0 ? this.#at : end).join('');
    if (!/^[0-9a-fA-F]{1,6}$/.test(code)) throw this.error('an escape is broken', 'write it as \\u{1f600}');
    this.#at = end + 1;
    return this.#character(Number.parseInt(code, 16));
  }

  #character(value: number): string {
    if (value <= 0x10ffff && (value < 0xd800 || value > 0xdfff)) return String.fromCodePoint(value);
    throw this.error(`U+${value.toString(16)} is not a character`, 'write characters above U+FFFF as \\u{…}');
  }

  #peek(): string | undefined {
    return this.#characters[this.#at];
  }

  #next(): string {
    const character = this.#characters[this.#at];
    if (character === undefined) throw this.error('it ends too early', 'close what is open');
    this.#at += 1;
    return character;
  }

  #take(character: string): boolean {
    if (this.#characters[this.#at] !== character) return false;
    this.#at += 1;
    return true;
  }
}

const CONTROLS: ReadonlyMap<string, string> = new Map([
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
  ['f', '\f'],
  ['v', '\v'],
  ['0', '\0'],
]);
const SETS: ReadonlyMap<string, Characters> = new Map([
  ['d', DIGITS],
  ['D', complement(DIGITS)],
  ['w', WORD],
  ['W', complement(WORD)],
  ['s', SPACE],
  ['S', complement(SPACE)],
]);

function combinedAnchoring(parts: readonly Anchoring[]): Anchoring {
  if (parts.every((part) => part === 'all')) return 'all';
  return parts.every((part) => part === 'none') ? 'none' : 'some';
}

function single(set: Characters): number | undefined {
  const [range, ...more] = set;
  return range && more.length === 0 && range[0] === range[1] ? range[0] : undefined;
}

/** A condition on the texts of a pattern. */
interface Lookahead {
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
