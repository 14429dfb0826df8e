import { characters, codePoint, DIGITS } from './characters.ts';
import { invalid } from './error.ts';
import {
  choice,
  EMPTY,
  type Expression,
  isNever,
  NEVER,
  oneOf,
  optional,
  repeat,
  sequence,
  text,
} from './expression.ts';

/** An end of a range of numbers. */
export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

/** Decimal digits that a 64-bit float distinguishes: numbers with at most this many compare as their texts do. */
const MAX_DIGITS = 15;
const MANY = Number.POSITIVE_INFINITY;

/** Integers between two bounds, without exponents, fractions or `-0`. @throws GrammarError for bounds past ±2^53 */
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

function ceiling({ value, exclusive }: Bound): bigint {
  const whole = Math.ceil(value);
  return safe(whole) + (exclusive && whole === value ? 1n : 0n);
}

function floor({ value, exclusive }: Bound): bigint {
  const whole = Math.floor(value);
  return safe(whole) - (exclusive && whole === value ? 1n : 0n);
}

function safe(value: number): bigint {
  if (!Number.isSafeInteger(value))
    throw invalid(`the bound ${value} is past ±2^53; leave it out or use a smaller one`);
  return BigInt(value);
}

/** Decimal integers from `low` (at least 0) to `high`. */
function wholes(low: bigint, high: bigint | undefined): Expression {
  if (high !== undefined && low > high) return NEVER;
  const first = String(low);
  if (high === undefined) {
    const longer = sequence([digit(1, 9), repeat(oneOf(DIGITS), first.length, MANY)]);
    return choice([sameLength(first, '9'.repeat(first.length)), longer]);
  }
  const last = String(high);
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

/**
 * Decimal numbers between two bounds, without exponents. @throws GrammarError for bounds of more than 15 digits, where rounding could carry
 * a number over its bound
 */
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
  const maxFractionDigits = MAX_DIGITS - Math.max(String(low.whole).length, high ? String(high.whole).length : 0);
  if (Math.max(low.fraction.length, high?.fraction.length ?? 0) > maxFractionDigits) {
    throw invalid(`a bound of more than ${MAX_DIGITS} digits cannot be kept exactly; round it`);
  }
  if (high && high.whole === low.whole)
    return sequence([text(String(low.whole)), fraction(low, high, maxFractionDigits)]);
  if (high && high.whole < low.whole) return NEVER;
  const anyFraction = fraction(undefined, undefined, maxFractionDigits);
  return choice([
    sequence([text(String(low.whole)), fraction(low, undefined, maxFractionDigits)]),
    sequence([wholes(low.whole + 1n, high && high.whole - 1n), anyFraction]),
    high ? sequence([text(String(high.whole)), fraction(undefined, high, maxFractionDigits)]) : NEVER,
  ]);
}

function decimal({ value, exclusive }: Bound): Decimal {
  const [, whole, fraction = '', exponent = '0'] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? [];
  const shift = Number(exponent);
  if (whole === undefined || shift > 0 || fraction.length - shift > MAX_DIGITS) {
    throw invalid(`the bound ${value} has more than ${MAX_DIGITS} digits; round it or leave it out`);
  }
  // A number below 1e-6 is printed as `1.5e-7`: its digits move behind the point.
  const digits = shift < 0 ? '0'.repeat(-shift - 1) + whole + fraction : fraction;
  return { whole: shift < 0 ? 0n : BigInt(whole), fraction: digits.replace(/0+$/, ''), exclusive };
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
