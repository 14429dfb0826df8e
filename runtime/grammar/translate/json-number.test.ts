import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { recognizes } from '../testing/recognize.ts';
import type { Expression } from './expression.ts';
import { type Bound, decimals, integers } from './json.ts';

const SEED = 11;

function matches(expression: Expression, text: string): boolean {
  return recognizes({ root: 'root', rules: new Map([['root', expression]]) }, text);
}

function within(value: number, min: Bound | undefined, max: Bound | undefined): boolean {
  const above = min === undefined || value > min.value || (value === min.value && !min.exclusive);
  const below = max === undefined || value < max.value || (value === max.value && !max.exclusive);
  return above && below;
}

function bound(random: Random, digits: number): Bound | undefined {
  if (random.chance(0.2)) return undefined;
  const size = 10 ** random.integer(0, 4);
  return { value: Number((random.integer(-size, size) / 10 ** digits).toFixed(digits)), exclusive: random.chance(0.5) };
}

describe('ranges of numbers', () => {
  it(`contain exactly the integers between their bounds, seed ${SEED}`, () => {
    const random = new Random(SEED);
    for (let index = 0; index < 300; index += 1) {
      const [min, max] = [bound(random, random.integer(0, 1)), bound(random, random.integer(0, 1))];
      const expression = integers(min, max);
      const near = [min, max].flatMap((end) =>
        end ? [-2, -1, 0, 1, 2].map((step) => Math.trunc(end.value) + step) : [],
      );
      const values = [...near, ...Array.from({ length: 20 }, () => random.integer(-20_000, 20_000)), 0];
      for (const value of values) {
        assert.equal(
          matches(expression, String(value)),
          within(value, min, max),
          `${value} in ${JSON.stringify([min, max])}`,
        );
      }
      for (const text of ['', '-', '00', '01', '-0', '1.0', '+1', '1e3'])
        assert.equal(matches(expression, text), false, text);
    }
  });

  it(`contain exactly the decimals between their bounds, seed ${SEED}`, () => {
    const random = new Random(SEED);
    for (let index = 0; index < 300; index += 1) {
      const [min, max] = [bound(random, random.integer(0, 4)), bound(random, random.integer(0, 4))];
      const expression = decimals(min, max);
      const near = [min, max].flatMap((end) =>
        end
          ? [-1, -0.1, -0.0001, 0, 0.0001, 0.1, 1].map((step) => (end.value + step).toFixed(random.integer(4, 6)))
          : [],
      );
      const far = Array.from({ length: 20 }, () => (random.next() * 400 - 200).toFixed(random.integer(0, 3)));
      for (const text of [...near, ...far, '0', '0.0']) {
        if (Object.is(Number(text), -0)) continue;
        assert.equal(
          matches(expression, text),
          within(Number(text), min, max),
          `${text} in ${JSON.stringify([min, max])}`,
        );
      }
      for (const text of ['1e3', '2.5e-1', '-9.99e-7', '1E+20', '-3e2', '9.999999999999999e1'])
        if (matches(expression, text))
          assert.ok(within(Number(text), min, max), `${text} in ${JSON.stringify([min, max])}`);
      for (const text of ['', '-', '00.1', '.5', '1.', '--1', '0e1', '1e', '1e400'])
        assert.equal(matches(expression, text), false, text);
    }
  });

  it('keep small, large and long bounds, and numbers beside them that rounding would carry over', () => {
    const small = { value: 1.5e-7, exclusive: false };
    assert.ok(matches(decimals(small, undefined), '0.00000015'));
    assert.ok(!matches(decimals(small, undefined), '0.00000014'));
    const nearly = decimals(undefined, { value: 5, exclusive: true });
    assert.ok(matches(nearly, '4.99999999999999'));
    assert.ok(!matches(nearly, `4.${'9'.repeat(20)}`), 'it rounds to 5');
    const long = decimals({ value: 0.1 + 0.2, exclusive: false }, { value: 1, exclusive: false });
    for (const text of ['0.30000000000000004', '0.3000000000000000444', '1', '1.0'])
      assert.ok(matches(long, text), text);
    for (const text of ['0.3', '0.30000000000000003', '1.00000000000000000001']) assert.ok(!matches(long, text), text);
    const float32 = 3.4028234663852886e38;
    const float = decimals({ value: -float32, exclusive: false }, { value: float32, exclusive: false });
    for (const text of ['0', '-1.5', '1e37', '-9.9e37', '1e-7', '340282346638528860000000000000000000000'])
      assert.ok(matches(float, text), text);
    for (const text of ['340282346638528870000000000000000000000', '1e39', '1e38'])
      assert.ok(!matches(float, text), text);
    assert.ok(matches(decimals({ value: 0, exclusive: true }, undefined), '1.5e-7'));
    assert.ok(!matches(decimals({ value: 0, exclusive: true }, undefined), '1e-300'));
  });

  it('keep the bounds of 64-bit integers, and stay within bounds that JSON has rounded', () => {
    const inclusive = (value: number): Bound => ({ value, exclusive: false });
    const int64 = integers(inclusive(-(2 ** 63)), inclusive(Number('9223372036854775807')));
    for (const text of ['0', '-9223372036854775808', '9223372036854775807']) assert.ok(matches(int64, text), text);
    for (const text of ['-9223372036854775809', '9223372036854775808']) assert.ok(!matches(int64, text), text);
    const uint64 = integers(inclusive(0), inclusive(Number('18446744073709551615')));
    assert.ok(matches(uint64, '18446744073709551615'));
    assert.ok(!matches(uint64, '18446744073709551616'));
    // 9999999999999999 is read as 10000000000000000.
    const rounded = integers(undefined, inclusive(Number('9999999999999999')));
    assert.ok(matches(rounded, '9999999999999999'));
    assert.ok(!matches(rounded, '10000000000000000'));
    assert.ok(matches(integers(undefined, undefined), '1'.repeat(40)));
    assert.ok(!matches(integers(undefined, undefined), '1'.repeat(41)));
  });
});
