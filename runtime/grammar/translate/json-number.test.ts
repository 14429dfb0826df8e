import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Random } from '../testing/random.ts';
import { recognizes } from '../testing/recognize.ts';
import type { Expression } from './expression.ts';
import { type Bound, decimals, integers } from './json-number.ts';

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
      for (const text of ['', '-', '00.1', '.5', '1.', '1e3', '--1'])
        assert.equal(matches(expression, text), false, text);
    }
  });

  it('support small bounds and refuse bounds that rounding could exceed', () => {
    const small = { value: 1.5e-7, exclusive: false };
    assert.ok(matches(decimals(small, undefined), '0.00000015'));
    assert.ok(!matches(decimals(small, undefined), '0.00000014'));
    const nearly = decimals(undefined, { value: 5, exclusive: true });
    assert.ok(matches(nearly, '4.99999999999999'));
    assert.ok(!matches(nearly, `4.${'9'.repeat(20)}`), 'it rounds to 5');
    assert.throws(() => decimals({ value: 0.1 + 0.2, exclusive: false }, undefined), /more than 15 digits/);
    assert.throws(() => decimals({ value: 1e300, exclusive: false }, undefined), /more than 15 digits/);
    assert.throws(() => integers({ value: 2 ** 60, exclusive: false }, undefined), /2\^53/);
  });
});
