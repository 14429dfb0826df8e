import type { Characters, Range } from '../translate/characters.ts';

/** Bytes from the first to the second, both included. */
export type ByteRange = Range;

/** Last characters that take 1, 2, 3 and 4 bytes. */
const LAST_OF_LENGTH = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/**
 * Characters as sequences of byte ranges, whose union is exactly their UTF-8 (Thompson's construction, as in RE2's
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

/** Sequences for characters that take a first byte and `rest` further bytes. A further byte holds six bits of the character. */
function split(from: number, to: number, rest: number): ByteRange[][] {
  for (let tail = 1; tail <= rest; tail += 1) {
    const mask = (1 << (6 * tail)) - 1;
    // Both ends must share the bits before the tail, or the tail must be a full range.
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
