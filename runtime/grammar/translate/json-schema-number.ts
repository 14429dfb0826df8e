import { characters, charactersOf, DIGITS } from './characters.ts';
import {
  choice,
  EMPTY,
  type Expression,
  isNever,
  NEVER,
  oneOf,
  optional,
  RuleSet,
  repeat,
  sequence,
  text,
} from './expression.ts';
import { decimals, integers, type JsonRules, languageOf } from './json.ts';
import type { Case } from './json-schema-case.ts';
import { Inexpressible } from './json-schema-object.ts';
import { BoundedCache } from './known.ts';
import { type Automaton, automatonFrom, automatonOf, complement, expressionOf, intersection } from './regular.ts';

/** Decimal digits that a double surely distinguishes. */
const MAX_DIGITS = 15;
/** Maximum digits after the point, unless a `multipleOf` needs more. */
const MIN_PLACES = 6;
const UNLIMITED = Number.POSITIVE_INFINITY;
/** Maximum states of the automata of remembered numbers: about 30 MB. */
const MAX_KNOWN = 100_000;
const numbers = new BoundedCache<Expression>(MAX_KNOWN, (made) =>
  made.kind === 'language' ? made.language.states : 1,
);

/** The numbers that a case of a schema allows. @throws Inexpressible when its multiples or excluded numbers cannot be expressed */
export function numberExpression(
  json: JsonRules,
  { integers: isInteger, low, high, multiples = [], unlisted }: Case,
): Expression {
  const excludedNumbers = (unlisted ?? []).filter((value) => typeof value === 'number');
  if (multiples.length === 0 && excludedNumbers.length === 0) {
    if (isInteger) return integers(low, high);
    return low || high ? decimals(low, high) : json.number;
  }
  const key = JSON.stringify({ whole: isInteger, low, high, multiples, others: excludedNumbers });
  const made = numbers.getOrMake(key, () => {
    const bounded = automatonOf(isInteger ? integers(low, high) : decimals(low, high));
    const places = isInteger ? 0 : Math.max(MIN_PLACES, ...multiples.map(({ of }) => decimalPlacesOf(of)));
    const automaton = [
      automatonOf(shortNumbers(places)),
      ...multiples.map(({ of, mustHold }) => (mustHold ? multiplesOf(of) : complement(multiplesOf(of)))),
      ...(excludedNumbers.length > 0 ? [complement(automatonOf(choice(excludedNumbers.map(spellings))))] : []),
    ].reduce(intersection, bounded);
    const ownRules = new RuleSet(UNLIMITED, () => new Error('this set has no limit'));
    const number = expressionOf(automaton, ownRules);
    return isNever(number) ? NEVER : { kind: 'language', language: languageOf(ownRules.grammar(number).rules, false) };
  });
  // The root rule does not count: see `stringExpression`.
  if (made.kind === 'language') json.rules.reserve(made.language.size - 1);
  return made;
}

/** Numbers of at most 15 digits: up to `places` of them after the point, and the others before it. */
function shortNumbers(places: number): Expression {
  if (places >= MAX_DIGITS) throw new Inexpressible('the multiples have too many places');
  const digits = (maxCount: number): Expression => repeat(oneOf(DIGITS), 1, maxCount);
  const fraction = places === 0 ? EMPTY : optional(sequence([text('.'), digits(places)]));
  return sequence([optional(text('-')), digits(MAX_DIGITS - places), fraction]);
}

/** All texts of a number without an exponent. */
function spellings(value: number): Expression {
  const decimalText = String(Object.is(value, -0) ? 0 : value);
  if (decimalText.includes('e')) throw new Inexpressible('a number with an exponent');
  const zeros = repeat(text('0'), 0, Number.POSITIVE_INFINITY);
  const spelled = decimalText.includes('.')
    ? sequence([text(decimalText), zeros])
    : sequence([text(decimalText), optional(sequence([text('.'), zeros]))]);
  return value === 0 ? sequence([optional(text('-')), spelled]) : spelled;
}

/** A decimal number: `digits` × 10^-`scale`. */
interface Decimal {
  readonly digits: bigint;
  readonly scale: number;
}

/** Maximum product of an automaton's remainders and its numbers of decimal places. */
const MAX_REMAINDERS = 2000;
const DIGIT_SYMBOLS = Array.from({ length: 10 }, (_, digit) => characters([0x30 + digit, 0x30 + digit]));
const ALPHABET = [...DIGIT_SYMBOLS, charactersOf('.'), charactersOf('-')];
/** Index of the point in `ALPHABET`. The digits stand before it, and the minus sign after it. */
const POINT = 10;

/** True if a number is a multiple of another, as decimal numbers: 0.3 is a multiple of 0.1. */
export function isMultiple(value: number, of: number): boolean {
  const [a, b] = [decimal(value), decimal(of)];
  const scale = Math.max(a.scale, b.scale);
  const [dividend, divisor] = [a, b].map((each) => each.digits * 10n ** BigInt(scale - each.scale));
  return divisor !== undefined && divisor !== 0n && (dividend ?? 0n) % divisor === 0n;
}

/**
 * The multiples of a positive number, as decimal numbers without exponents. The automaton remembers the remainder of the digits read so far. It
 * also accepts texts that are not JSON, such as '00'.
 *
 * @throws Inexpressible if there are too many remainders
 */
export function multiplesOf(of: number): Automaton {
  const { digits, scale } = decimal(of);
  if (digits * BigInt(scale + 1) > MAX_REMAINDERS) throw new Inexpressible('the multiples have too many remainders');
  const step = Number(digits);
  interface DigitsRead {
    readonly remainder: number;
    /** Number of digits after the point, at most the `scale` of the step; -1 before the point. */
    readonly decimalPlaces: number;
    readonly begun: boolean;
  }
  const accepts = ({ remainder, decimalPlaces, begun }: DigitsRead): boolean =>
    begun && Number((BigInt(remainder) * 10n ** BigInt(scale - Math.max(0, decimalPlaces))) % digits) === 0;
  const next = ({ remainder, decimalPlaces, begun }: DigitsRead, symbol: number): DigitsRead | null => {
    if (symbol > POINT) return begun ? null : { remainder, decimalPlaces, begun: true };
    if (symbol === POINT) return decimalPlaces < 0 ? { remainder, decimalPlaces: 0, begun: true } : null;
    // After the step's last decimal place, only a zero keeps the number a multiple.
    if (decimalPlaces === scale) return symbol === 0 ? { remainder, decimalPlaces, begun } : null;
    return {
      remainder: (remainder * 10 + symbol) % step,
      decimalPlaces: decimalPlaces < 0 ? decimalPlaces : decimalPlaces + 1,
      begun: true,
    };
  };
  return automatonFrom<DigitsRead>({ remainder: 0, decimalPlaces: -1, begun: false }, accepts, ALPHABET, next);
}

/** Digits after the point that the multiples of a number may have. */
function decimalPlacesOf(of: number): number {
  return decimal(of).scale;
}

/** The decimal number of a value's shortest text. */
function decimal(value: number): Decimal {
  const [, sign = '', whole = '0', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? [];
  const scale = fraction.length - Number(exponent);
  const digits = BigInt(`${sign}${whole}${fraction}`);
  return scale >= 0 ? { digits, scale } : { digits: digits * 10n ** BigInt(-scale), scale: 0 };
}
