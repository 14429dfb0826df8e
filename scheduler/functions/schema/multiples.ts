/**
 * True when `value` is a multiple of `of` in decimal notation: 0.3 is a multiple of 0.1, although their binary fractions are not. Both
 * numbers have at most 17 digits and an exponent of at most three digits, so the integers below stay under 700 digits.
 */
export function isMultiple(value: number, of: number): boolean {
  if (!Number.isFinite(value) || !Number.isFinite(of) || of <= 0) return false;
  const [coefficient, exponent] = decimal(value);
  const [divisor, divisorExponent] = decimal(of);
  const shift = exponent - divisorExponent;
  return shift >= 0
    ? (coefficient * 10n ** BigInt(shift)) % divisor === 0n
    : coefficient % (divisor * 10n ** BigInt(-shift)) === 0n;
}

/** A number as an integer and a power of ten. */
function decimal(value: number): readonly [bigint, number] {
  const [digits = '0', exponent = '0'] = String(Math.abs(value)).split('e');
  const point = digits.indexOf('.');
  return [BigInt(digits.replace('.', '')), Number(exponent) - (point < 0 ? 0 : digits.length - point - 1)];
}
