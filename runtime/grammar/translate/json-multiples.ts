import { characters, charactersOf } from './characters.ts';
import { Inexpressible } from './json-schema-object.ts';
import { type Automaton, automatonFrom } from './regular.ts';

/** A decimal number: `digits` × 10^-`scale`. */
interface Decimal {
  readonly digits: bigint;
  readonly scale: number;
}

/** Maximum product of an automaton's remainders and its numbers of decimal places. */
const MAX_REMAINDERS = 2000;
const DIGITS = Array.from({ length: 10 }, (_, digit) => characters([0x30 + digit, 0x30 + digit]));
const ALPHABET = [...DIGITS, charactersOf('.'), charactersOf('-')];
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
export function decimalPlacesOf(of: number): number {
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
