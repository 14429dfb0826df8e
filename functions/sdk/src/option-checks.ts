import { InferletError } from './errors.ts';

export function check(holds: boolean, name: string, expected: string, got: unknown): void {
  if (!holds) throw new InferletError('invalid-argument', `${name} must be ${expected}, not ${String(got)}.`);
}

/** Throws `invalid-argument` unless `value` is a whole number from `least` to `most`. */
export function checkCount(name: string, value: number, least = 1, most = Number.POSITIVE_INFINITY): void {
  const range = most === Number.POSITIVE_INFINITY ? `${least} or more` : `from ${least} to ${most}`;
  check(Number.isInteger(value) && value >= least && value <= most, name, `a whole number, ${range}`, value);
}
