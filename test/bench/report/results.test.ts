import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { formatSpread } from '../statistics.ts';
import { changes, type Figure, figuresOf, noiseOf, spreadIn } from './results.ts';

const TABLE = {
  name: 'http',
  header: ['function', 'clients', 'tokens/s', 'of which', 'over'],
  rows: [
    ['loop', '1', '340 (327–352)', 'gateway 3', '0.92 (0.88–0.96)'],
    ['loop', '8', '1376 (1299–1453)', '', ''],
  ],
};

describe('results', () => {
  it('read the spreads of a table, with the cells before them as the name of a row', () => {
    const figures = figuresOf(TABLE).map(({ row, column, spread }) => [row, column, spread.median, spread.max]);
    assert.deepEqual(figures, [
      ['function loop, clients 1', 'tokens/s', 340, 352],
      ['function loop, clients 1', 'over', 0.92, 0.96],
      ['function loop, clients 8', 'tokens/s', 1376, 1453],
    ]);
    for (const cell of ['', '3', '2.0, 7.0', '1/8', '5 (a–b)']) assert.equal(spreadIn(cell), undefined);
    assert.deepEqual(figuresOf({ ...TABLE, rows: [['a', 'b']] }), []);
  });

  it('read what formatSpread writes', () => {
    const value = fc.integer({ min: -10_000, max: 1_000_000 }).map((hundredths) => hundredths / 100);
    fc.assert(
      fc.property(value, value, value, (median, min, max) => {
        assert.deepEqual(spreadIn(formatSpread({ median, min, max })), { median, min, max });
      }),
    );
  });

  it('call a change beyond noise exactly when the ranges have nothing in common', () => {
    const spread = fc
      .array(fc.integer({ min: 1, max: 40 }), { minLength: 3, maxLength: 3 })
      .map((values) => values.toSorted((a, b) => a - b))
      .map(([min = 0, median = 0, max = 0]) => ({ min, median, max }));
    const figure = (of: Figure['spread'], row = 'a'): Figure => ({ suite: 's', row, column: 'c', spread: of });
    fc.assert(
      fc.property(spread, spread, (now, before) => {
        const common = Array.from({ length: 41 }, (_, i) => i).some(
          (i) => i >= now.min && i <= now.max && i >= before.min && i <= before.max,
        );
        const [change, ...more] = changes([figure(now), figure(now, 'new')], [figure(before), figure(before, 'old')]);
        assert.equal(more.length, 0);
        assert.equal(change?.beyondNoise, !common);
        assert.equal(change?.ratio, now.median / before.median);
      }),
    );
    assert.equal(noiseOf({ median: 4, min: 3, max: 5 }), 0.5);
  });
});
