/** Most characters of an inferlet's result. */
const MAX_RESULT = 4 << 20;
/** Most characters of an answer besides its vectors. */
const FRAME = 1024;
/** Most characters of a vector's item in the answer, besides its numbers. */
const ITEM = 64;
/** Characters of a number with nine digits, a sign, a point, an exponent and a comma. */
const NUMBER = 16;

/** Most vectors of `size` numbers that fit one answer. */
export function mostVectors(size: number, format: 'float' | 'base64'): number {
  const characters = format === 'base64' ? 4 * Math.ceil((4 * size) / 3) : NUMBER * size;
  return Math.floor((MAX_RESULT - FRAME) / (ITEM + characters));
}

/** Rounds a 32-bit float to nine digits, which tell it from all other 32-bit floats. Unrounded, JSON would print about twice as many digits. */
export const inNineDigits = (value: number): number => Number(value.toPrecision(9));
