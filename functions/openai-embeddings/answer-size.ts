/** Most characters of an inferlet's result. */
const MAX_RESULT = 4 << 20;
/** Characters of an answer besides its vectors, and of a vector besides its numbers. */
const FRAME = 1024;
const ITEM = 64;
/** Characters of a number with nine digits, a sign, a point, an exponent and a comma. */
const NUMBER = 16;

/** Most vectors of `size` numbers that fit one answer. */
export function mostVectors(size: number, format: 'float' | 'base64'): number {
  const characters = format === 'base64' ? 4 * Math.ceil((4 * size) / 3) : NUMBER * size;
  return Math.floor((MAX_RESULT - FRAME) / (ITEM + characters));
}

/** A 32-bit float in nine digits, enough to tell it from all others. Printed as a 64-bit number, it would have twice as many. */
export const inNineDigits = (value: number): number => Number(value.toPrecision(9));
