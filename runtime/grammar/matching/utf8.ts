import type { Characters, Range } from '../translate/characters.ts';

/** The bytes from the first number to the second, both included. */
export type ByteRange = Range;

/** Last characters that take 1, 2, 3 and 4 bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/**
 * Sequences of byte ranges that together match exactly the UTF-8 of the characters of a set (Thompson's construction, as in RE2's
 * `Compiler::AddRuneRangeUTF8`).
 */
export function utf8(set: Characters): readonly (readonly ByteRange[])[] {
  return set.flatMap(([from, to]) =>
    LAST_OF_LENGTH.flatMap((last, index) => {
      const first = index === 0 ? 0 : (LAST_OF_LENGTH[index - 1] ?? 0) + 1;
      return from > last || to < first ? [] : split(Math.max(from, first), Math.min(to, last), index);
    }),
  );
}

/** Sequences for the characters from `from` to `to`. Each takes a first byte and `rest` further bytes, which hold six bits of it each. */
function split(from: number, to: number, rest: number): ByteRange[][] {
  for (let tail = 1; tail <= rest; tail += 1) {
    const mask = (1 << (6 * tail)) - 1;
    // One sequence is enough if both ends share the bits before the last `tail` bytes, or if these bytes take all values.
    if ((from & ~mask) === (to & ~mask)) continue;
    if ((from & mask) !== 0) return [...split(from, from | mask, rest), ...split((from | mask) + 1, to, rest)];
    if ((to & mask) !== mask) return [...split(from, (to & ~mask) - 1, rest), ...split(to & ~mask, to, rest)];
  }
  const [low, high] = [encode(from, rest), encode(to, rest)];
  return [low.map((byte, index): ByteRange => [byte, high[index] ?? byte])];
}

/** UTF-8 of a character: the first byte tells the number of further bytes, and each further byte begins with the bits 10. */
function encode(code: number, rest: number): number[] {
  if (rest === 0) return [code];
  const lead = (0xff00 >> (rest + 1)) & 0xff;
  const tail = Array.from({ length: rest }, (_, index) => 0x80 | ((code >> (6 * (rest - 1 - index))) & 0x3f));
  return [lead | (code >> (6 * rest)), ...tail];
}
