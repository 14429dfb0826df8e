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
  isNever,
  type Language,
  maxStates,
  NEVER,
  oneOf,
  optional,
  type RuleSet,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { BoundedCache } from './known.ts';

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

/** An end of a range of numbers. */
export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

/** Decimal digits that a 64-bit float distinguishes: numbers with at most this many compare as their texts do. */
const EXACT_DIGITS = 15;
/** Maximum digits of a whole part, and of a fraction: without a bound, a model that likes digits would write nothing else. */
const MAX_DIGITS = 40;
const MAX_INT64 = 2n ** 63n - 1n;
const MAX_UINT64 = 2n ** 64n - 1n;

/** Integers between two bounds, of at most 40 digits, without exponents, fractions or `-0`. */
export function integers(min: Bound | undefined, max: Bound | undefined): Expression {
  const low = min && ceiling(min);
  const high = max && floor(max);
  const negative = low === undefined || low < 0n ? negativeIntegers(low, high) : NEVER;
  const least = low === undefined || low < 0n ? 0n : low;
  const nonNegative = high === undefined || high >= 0n ? wholes(least, high) : NEVER;
  return choice([negative, nonNegative]);
}

function negativeIntegers(low: bigint | undefined, high: bigint | undefined): Expression {
  const least = high === undefined || high >= 0n ? 1n : -high;
  return sequence([text('-'), wholes(least, low === undefined ? undefined : -low)]);
}

function ceiling(bound: Bound): bigint {
  const isLeastInt64 = bound.value === Number(-MAX_INT64 - 1n) && !bound.exclusive;
  return isLeastInt64 ? -MAX_INT64 - 1n : -floor(negated(bound));
}

/** The largest integer up to a bound. Past 2^53, JSON's number may have been rounded: then an integer that the number surely reaches. */
function floor({ value, exclusive }: Bound): bigint {
  const whole = Math.floor(value);
  if (Number.isSafeInteger(whole)) return BigInt(whole) - (exclusive && whole === value ? 1n : 0n);
  const digits = BigInt(whole);
  for (const most of [MAX_INT64, MAX_UINT64]) if (digits === most + 1n) return most;
  return digits - halfStep(digits) - (exclusive ? 1n : 0n);
}

/** Half of the difference to the next number towards zero, rounded up. */
function halfStep(digits: bigint): bigint {
  const bits = (digits < 0n ? -digits : digits).toString(2).length;
  return 2n ** BigInt(Math.max(0, bits - 54));
}

/** Decimal integers from `low` (at least 0) to `high`. */
function wholes(low: bigint, high: bigint | undefined): Expression {
  if (high !== undefined && low > high) return NEVER;
  const first = String(low);
  if (high === undefined) {
    const longer = sequence([digit(1, 9), repeat(oneOf(DIGITS), first.length, Math.max(first.length, MAX_DIGITS - 1))]);
    return choice([sameLength(first, '9'.repeat(first.length)), longer]);
  }
  const last = String(high).length > MAX_DIGITS && first.length <= MAX_DIGITS ? '9'.repeat(MAX_DIGITS) : String(high);
  const options: Expression[] = [];
  for (let length = first.length; length <= last.length; length += 1) {
    const from = length === first.length ? first : `1${'0'.repeat(length - 1)}`;
    const to = length === last.length ? last : '9'.repeat(length);
    options.push(sameLength(from, to));
  }
  return choice(options);
}

/** Numbers between `from` and `to`, which have equally many digits. */
function sameLength(from: string, to: string): Expression {
  if (from === '') return EMPTY;
  if (/^0*$/.test(from) && /^9*$/.test(to)) return repeat(oneOf(DIGITS), from.length, from.length);
  const [a, b] = [Number(from[0]), Number(to[0])];
  const [low, high] = [from.slice(1), to.slice(1)];
  if (a === b) return sequence([digit(a, a), sameLength(low, high)]);
  const tailLength = low.length;
  return choice([
    sequence([digit(a, a), sameLength(low, '9'.repeat(tailLength))]),
    sequence([digit(a + 1, b - 1), repeat(oneOf(DIGITS), tailLength, tailLength)]),
    sequence([digit(b, b), sameLength('0'.repeat(tailLength), high)]),
  ]);
}

function digit(from: number, to: number): Expression {
  return oneOf(characters([0x30 + from, 0x30 + to]));
}

/** A bound's decimal digits: a whole part and a fraction without zeros at its end. */
interface Decimal {
  readonly whole: bigint;
  readonly fraction: string;
  readonly exclusive: boolean;
}

/** Decimal numbers between two bounds. Numbers with exponents are those that are surely between them by their size alone. */
export function decimals(min: Bound | undefined, max: Bound | undefined): Expression {
  const zero: Bound = { value: 0, exclusive: false };
  const options: Expression[] = [];
  if (max === undefined || max.value >= 0)
    options.push(magnitudes(min && min.value > 0 ? min : positiveStart(min), max));
  if (min === undefined || min.value < 0) {
    const from = max && max.value < 0 ? negated(max) : { ...zero, exclusive: true };
    options.push(sequence([text('-'), magnitudes(from, min && negated(min))]));
  }
  return choice(options);
}

/** The lower bound 0 of the non-negative numbers. It excludes zero if `min` excludes zero. */
function positiveStart(min: Bound | undefined): Bound {
  return { value: 0, exclusive: min?.value === 0 && min.exclusive };
}

function negated({ value, exclusive }: Bound): Bound {
  return { value: -value, exclusive };
}

function magnitudes(min: Bound, max: Bound | undefined): Expression {
  const low = decimal(min);
  const high = max && decimal(max);
  if (high && high.whole < low.whole) return NEVER;
  const longest = Math.max(String(low.whole).length, high ? String(high.whole).length : 0);
  // With more digits, a number beside an exclusive bound could be rounded to the bound. Only very small numbers are rounded to zero.
  const isExact = (low.exclusive && min.value !== 0) || high?.exclusive === true;
  const maxFractionDigits = isExact ? Math.max(0, EXACT_DIGITS - longest) : MAX_DIGITS;
  const scientific = exponents(low, high);
  if (high && high.whole === low.whole)
    return choice([sequence([text(String(low.whole)), fraction(low, high, maxFractionDigits)]), ...scientific]);
  const anyFraction = fraction(undefined, undefined, maxFractionDigits);
  return choice([
    sequence([text(String(low.whole)), fraction(low, undefined, maxFractionDigits)]),
    sequence([wholes(low.whole + 1n, high && high.whole - 1n), anyFraction]),
    high ? sequence([text(String(high.whole)), fraction(undefined, high, maxFractionDigits)]) : NEVER,
    ...scientific,
  ]);
}

/** Largest exponents with which every number is finite and not zero. */
const [MAX_EXPONENT, MIN_EXPONENT] = [307, 299];

/** Numbers such as `1.5e-7` or `2e+30` that are surely between two bounds: those below 1, and those from 10 on. */
function exponents(low: Decimal, high: Decimal | undefined): readonly Expression[] {
  const mantissa = sequence([digit(1, 9), optional(sequence([text('.'), repeat(oneOf(DIGITS), 1, EXACT_DIGITS)]))]);
  const scientific = (sign: Expression, most: number): Expression =>
    most < 1 ? NEVER : sequence([mantissa, oneOf(charactersOf('eE')), sign, wholes(1n, BigInt(most))]);
  const options: Expression[] = [];
  // These are at least 1e-299, and below 1.
  const isFromZero = low.whole === 0n && low.fraction === '';
  if (isFromZero && (high === undefined || high.whole > 0n)) options.push(scientific(text('-'), MIN_EXPONENT));
  // These are at least 10, and below ten times the power.
  const power = high ? Math.min(MAX_EXPONENT + 1, String(high.whole).length - 1) : MAX_EXPONENT + 1;
  if (low.whole < 10n) options.push(scientific(optional(text('+')), power - 1));
  return options.filter((option) => !isNever(option));
}

/** The digits of a non-negative bound. */
function decimal({ value, exclusive }: Bound): Decimal {
  const [, whole = '0', fraction = '', exponent = '0'] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? [];
  const shift = Number(exponent);
  const digits = whole + fraction;
  const point = whole.length + shift;
  // A number below 1e-6 is printed as `1.5e-7`, and one from 1e21 on as `1.5e+21`.
  const padded = point <= 0 ? '0'.repeat(1 - point) + digits : digits.padEnd(point, '0');
  const at = Math.max(1, point);
  return { whole: BigInt(padded.slice(0, at)), fraction: padded.slice(at).replace(/0+$/, ''), exclusive };
}

/** The rest of a number whose whole part equals that of each given bound: empty, or a point and up to `maxDigits` digits. */
function fraction(low: Decimal | undefined, high: Decimal | undefined, maxDigits: number): Expression {
  const tail = digitsBetween(0, maxDigits, low, high);
  const fractionPart = isNever(tail.more) ? EMPTY : optional(sequence([text('.'), tail.more]));
  return tail.canEnd ? fractionPart : sequence([text('.'), tail.more]);
}

/** The digits from `at` on of a fraction whose earlier digits equal those of each given bound. `canEnd`: true if the fraction may end before them. */
function digitsBetween(
  at: number,
  maxDigits: number,
  low: Decimal | undefined,
  high: Decimal | undefined,
): { canEnd: boolean; more: Expression } {
  const fitsLow = low === undefined || (at >= low.fraction.length && !low.exclusive);
  const fitsHigh = high === undefined || at < high.fraction.length || !high.exclusive;
  const canEnd = fitsLow && fitsHigh;
  if (at >= maxDigits) return { canEnd, more: NEVER };
  if (high === undefined && fitsLow) {
    return { canEnd, more: repeat(oneOf(DIGITS), 1, maxDigits - at) };
  }
  const from = low ? digitAt(low.fraction, at) : 0;
  const to = high ? digitAt(high.fraction, at) : 9;
  const follow = (first: number, last: number, tightLow: typeof low, tightHigh: typeof high): Expression => {
    if (first > last) return NEVER;
    const rest = digitsBetween(at + 1, maxDigits, tightLow, tightHigh);
    return sequence([digit(first, last), choice([...(rest.canEnd ? [EMPTY] : []), rest.more])]);
  };
  if (from > to) return { canEnd, more: NEVER };
  if (from === to && low && high) return { canEnd, more: follow(from, to, low, high) };
  const options = [
    low ? follow(from, from, low, undefined) : NEVER,
    follow(low ? from + 1 : from, high ? to - 1 : to, undefined, undefined),
    high ? follow(to, to, undefined, high) : NEVER,
  ];
  return { canEnd, more: choice(options) };
}

function digitAt(fraction: string, at: number): number {
  return codePoint(fraction[at] ?? '0') - 0x30;
}

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
