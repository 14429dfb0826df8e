import {
  type Characters,
  characters,
  charactersOf,
  codePoint,
  complement,
  DIGITS,
  intersection,
  union,
} from './characters.ts';
import {
  choice,
  EMPTY,
  type Expression,
  type Language,
  oneOf,
  optional,
  type RuleSet,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { MAX_DIGITS } from './json-number.ts';
import { BoundedCache } from './known.ts';
import { maxStates } from './states.ts';

const MANY = Number.POSITIVE_INFINITY;

/** Deepest indentation of a line: without a bound, a model that likes spaces would write nothing else. */
const MAX_INDENT = 20;

/** Maximum digits of an exponent: no finite number has more. */
const EXPONENT_DIGITS = 3;

/** Characters that stand for themselves in a JSON string. */
export const PLAIN: Characters = complement(union(characters([0, 0x1f]), charactersOf('"\\')));

const SPECIAL = complement(PLAIN);

/** Maximum size of the cache of strings, mostly the lengths of its keys: about 1,000 strings. */
const MAX_STRINGS = 10_000;
const strings = new BoundedCache<Expression>(MAX_STRINGS);

const QUOTE = text('"');
const HEX = characters([0x30, 0x39], [0x41, 0x46], [0x61, 0x66]);
const ESCAPES: ReadonlyMap<number, string> = new Map([
  [0x08, '\\b'],
  [0x09, '\\t'],
  [0x0a, '\\n'],
  [0x0c, '\\f'],
  [0x0d, '\\r'],
  [0x22, '\\"'],
  [0x5c, '\\\\'],
]);

const reference = (name: string): Expression => ({ kind: 'rule', name });
const [SPACE, NUMBER, OBJECT, ARRAY, VALUE] = (['space', 'number', 'object', 'array', 'value'] as const).map(
  reference,
) as [Expression, Expression, Expression, Expression, Expression];

/** The comma between two members or items, and the space after it. */
const SEPARATOR = sequence([text(','), SPACE]);

/**
 * The grammar of JSON (RFC 8259) as people print it. Between two tokens may stand one space, or a line end and the indentation of the next line.
 * Compact JSON has neither.
 */
export class JsonRules {
  readonly rules: RuleSet;
  /** The rules for arbitrary JSON, which are also in `rules`. */
  readonly shared: ReadonlyMap<string, Expression>;
  readonly space = SPACE;
  readonly value = VALUE;
  readonly object = OBJECT;
  readonly array = ARRAY;
  readonly string = ANY_STRING;
  readonly separator = SEPARATOR;
  readonly number = NUMBER;

  constructor(rules: RuleSet, compact = false) {
    this.rules = rules;
    this.shared = compact ? COMPACT_RULES : JSON_RULES;
    for (const [name, definition] of this.shared) rules.define(name, definition);
  }

  /** A string of `min` to `max` code points. */
  stringOf(min: number, max: number): Expression {
    return stringOf(min, max);
  }

  /** `key: value`, with the space after it. */
  pair(key: Expression, value: Expression): Expression {
    return pair(key, value);
  }

  /** `inner`, with a comma and space before it. */
  withComma(inner: Expression): Expression {
    return withComma(inner);
  }

  /** An expression between brackets, with space after the opening one. */
  within(open: string, close: string, inner: Expression): Expression {
    return within(open, close, inner);
  }
}

export const BOOLEAN = choice([text('true'), text('false')]);
export const NULL = text('null');

/** @param isBegun true for the rest of a string */
function stringOf(min: number, max: number, isBegun = false): Expression {
  return strings.getOrMake(`${min} ${max} ${isBegun}`, () => {
    const restOfString = sequence([repeat(JSON_CHARACTER, min, max), QUOTE]);
    const root = isBegun ? restOfString : sequence([QUOTE, restOfString]);
    return { kind: 'language', language: { ...languageOf(new Map([['root', root]])), lengths: { min, max, isBegun } } };
  });
}

/** The language of the rule 'root'. */
export function languageOf(rules: ReadonlyMap<string, Expression>, isString = true): Language {
  return { root: 'root', rules, isString, size: rules.size, states: maxStates(rules.values()) };
}

function pair(key: Expression, value: Expression): Expression {
  return sequence([key, text(':'), SPACE, value, SPACE]);
}

function withComma(inner: Expression): Expression {
  return sequence([SEPARATOR, inner]);
}

function within(open: string, close: string, inner: Expression): Expression {
  return sequence([text(open), SPACE, inner, text(close)]);
}

/** Any number of `inner` between brackets, with commas between them. Each `inner` ends with its space. */
function bracketed(open: string, close: string, inner: Expression): Expression {
  return within(open, close, optional(sequence([inner, repeat(withComma(inner), 0, MANY)])));
}

function stringCharacter(): Expression {
  const hex = oneOf(HEX);
  const of = (letters: string) => oneOf(charactersOf(letters));
  // A `\u` escape of a surrogate must be a high one followed by a low one; no other `\u` escape begins with D8 to DF.
  const escapes = choice([
    of('"\\/bfnrt'),
    sequence([text('u'), of('0123456789abcefABCEF'), hex, hex, hex]),
    sequence([text('u'), of('dD'), of('01234567'), hex, hex]),
    sequence([text('u'), of('dD'), of('89abAB'), hex, hex, text('\\u'), of('dD'), of('cdefCDEF'), hex, hex]),
  ]);
  return choice([oneOf(PLAIN), sequence([text('\\'), escapes])]);
}

/** The texts of `expression` as they are written inside a JSON string. */
export function escaped(expression: Expression): Expression {
  switch (expression.kind) {
    case 'text':
      return text([...expression.text].map((character) => escapedCharacter(codePoint(character))).join(''));
    case 'class':
      return escapedClass(expression.set);
    case 'sequence':
      return sequence(expression.parts.map(escaped));
    case 'choice':
      return choice(expression.options.map(escaped));
    case 'repeat':
      return repeat(escaped(expression.body), expression.min, expression.max);
    case 'rule':
    case 'language':
    case 'members':
      return expression;
  }
}

function escapedClass(set: Characters): Expression {
  const special = intersection(set, SPECIAL);
  if (special.length === 0) return oneOf(set);
  const spelled = special.flatMap(([from, to]) =>
    Array.from({ length: to - from + 1 }, (_, offset) => text(escapedCharacter(from + offset))),
  );
  return choice([oneOf(intersection(set, PLAIN)), ...spelled]);
}

function escapedCharacter(code: number): string {
  const known = ESCAPES.get(code);
  if (known !== undefined) return known;
  return code < 0x20 ? `\\u${code.toString(16).padStart(4, '0')}` : String.fromCodePoint(code);
}

function number(): Expression {
  const digits = (min: number, max: number): Expression => repeat(oneOf(DIGITS), min, max);
  const whole = choice([text('0'), sequence([oneOf(characters([0x31, 0x39])), digits(0, MAX_DIGITS - 1)])]);
  const fraction = sequence([text('.'), digits(1, MAX_DIGITS)]);
  const exponent = sequence([
    oneOf(charactersOf('eE')),
    optional(oneOf(charactersOf('+-'))),
    digits(1, EXPONENT_DIGITS),
  ]);
  return sequence([optional(text('-')), whole, optional(fraction), optional(exponent)]);
}

/** A JSON value written without spaces. */
export function literal(value: unknown): Expression {
  return text(JSON.stringify(value));
}

const NEW_LINE = sequence([text('\n'), repeat(oneOf(charactersOf(' \t')), 0, MAX_INDENT)]);

/** One character of a JSON string, escaped or not. */
export const JSON_CHARACTER = stringCharacter();

/** Any JSON string. */
const ANY_STRING = stringOf(0, MANY);
/** The rest of any JSON string. */
export const ANY_REST = stringOf(0, MANY, true);

/** The rules for arbitrary JSON. All grammars share these objects, and the automata that are built from them once. */
const JSON_RULES = jsonRules(optional(choice([text(' '), NEW_LINE])));
const COMPACT_RULES = jsonRules(EMPTY);
export const SHARED_RULES: readonly ReadonlyMap<string, Expression>[] = [JSON_RULES, COMPACT_RULES];

function jsonRules(space: Expression): ReadonlyMap<string, Expression> {
  return new Map([
    ['space', space],
    ['number', number()],
    ['object', bracketed('{', '}', pair(ANY_STRING, VALUE))],
    ['array', bracketed('[', ']', sequence([VALUE, SPACE]))],
    ['value', choice([OBJECT, ARRAY, ANY_STRING, NUMBER, BOOLEAN, NULL])],
  ]);
}
