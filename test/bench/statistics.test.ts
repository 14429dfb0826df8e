import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { formatSpread, formatTail, isEnoughFor, median, quantile, spread } from './statistics.ts';

describe('statistics', () => {
  it('computes quantiles by the nearest rank for values in any order', () => {
    const values = Array.from({ length: 100 }, (_, i) => ((i * 37) % 100) + 1);
    assert.deepEqual(
      [0, 0.01, 0.5, 0.95, 0.99, 1].map((q) => quantile(values, q)),
      [1, 1, 50, 95, 99, 100],
    );
    assert.equal(quantile([7], 0.99), 7);
    assert.ok(Number.isNaN(quantile([], 0.5)));
  });

  it('computes the median of an even count as the mean of the two middle values', () => {
    assert.equal(median([3, 1]), 2);
    assert.equal(median([10, 1, 2]), 2);
    assert.deepEqual(spread([4, 1, 2, 10]), { median: 3, min: 1, max: 10 });
    assert.ok(Number.isNaN(spread([]).median));
  });

  it('distinguishes one value, which has no range, from several equal ones', () => {
    assert.equal(formatSpread(spread([3])), '3.00 (n = 1)');
    assert.equal(formatSpread(spread([3, 3]), 0), '3 (3–3)');
  });

  it('takes a sample as large enough for a quantile only if more than one value is expected above it', () => {
    for (const [q, least] of [
      [0.5, 3],
      [0.95, 21],
      [0.99, 101],
    ] as const) {
      const upTo = (count: number) => Array.from({ length: count }, (_, i) => i);
      assert.ok(isEnoughFor(q, least) && quantile(upTo(least), q) < least - 1, `${q}`);
      assert.ok(!isEnoughFor(q, least - 1), `${q}`);
    }
  });

  it('does not change its input', () => {
    const values = [3, 1, 2];
    quantile(values, 0.5);
    median(values);
    assert.deepEqual(values, [3, 1, 2]);
  });

  it('formats a tail quantile only for samples that are large enough', () => {
    const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);
    assert.equal(formatTail(upTo(5)), '3.0, max 5.0');
    assert.equal(formatTail(upTo(100)), '50.5, max 100.0');
    assert.equal(formatTail(upTo(1000)), '500.5, 990.0');
    assert.equal(formatTail(upTo(20), 0, 0.95), '11, max 20');
    assert.equal(formatTail(upTo(40), 0, 0.95), '21, 38');
    assert.equal(formatTail([]), '');
  });
});
