import type { StepBudget } from './budget.ts';

/** Steps charged for a number, and powers of ten between both numbers that one further step covers. */
const MULTIPLE_STEPS = 50;
const POWERS_PER_STEP = 4;

/**
 * True when `value` is a multiple of `divisor` in decimal notation: 0.3 is a multiple of 0.1, although their binary fractions are not. Both
 * numbers have at most 17 digits and an exponent of at most three digits, so the integers below stay under 700 digits.
 */
export function isMultiple(value: number, divisor: number, budget: StepBudget): boolean {
  budget.spend(MULTIPLE_STEPS);
  if (!Number.isFinite(value) || !Number.isFinite(divisor) || divisor <= 0) return false;
  const [coefficient, exponent] = decimal(value);
  const [divisorCoefficient, divisorExponent] = decimal(divisor);
  const shift = exponent - divisorExponent;
  budget.spend(Math.abs(shift) / POWERS_PER_STEP);
  return shift >= 0
    ? (coefficient * 10n ** BigInt(shift)) % divisorCoefficient === 0n
    : coefficient % (divisorCoefficient * 10n ** BigInt(-shift)) === 0n;
}

/** The absolute value of a number as an integer coefficient and an exponent of ten. */
function decimal(value: number): readonly [bigint, number] {
  const [digits = '0', exponent = '0'] = String(Math.abs(value)).split('e');
  const point = digits.indexOf('.');
  return [BigInt(digits.replace('.', '')), Number(exponent) - (point < 0 ? 0 : digits.length - point - 1)];
}
