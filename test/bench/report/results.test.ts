import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { formatSpread, spread as spreadOf } from '../statistics.ts';
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

  it('read a figure of one round, and leave open if its change is beyond noise', () => {
    assert.deepEqual(spreadIn(formatSpread(spreadOf([1.5]))), { median: 1.5, min: 1.5, max: 1.5, isSingle: true });
    const rows = (value: string) => [['loop', '1', value, '', '']];
    const [single] = figuresOf({ ...TABLE, rows: rows('340 (n = 1)') });
    const [ranged] = figuresOf({ ...TABLE, rows: rows('200 (190–210)') });
    assert.ok(single && ranged);
    for (const [now, before] of [
      [single, ranged],
      [ranged, single],
      [single, single],
    ] as const)
      assert.equal(changes([now], [before])[0]?.beyondNoise, undefined);
    // Earlier versions wrote the value of one round as a range with equal bounds.
    const oldFormat = figuresOf({ ...TABLE, rows: [...rows('340 (340–340)'), ...rows('2 (2–2)')] });
    assert.deepEqual(
      oldFormat.map(({ spread }) => spread.isSingle),
      [true, true],
    );
    // Another figure with a range shows that there were several rounds.
    const mixed = figuresOf({ ...TABLE, rows: [...rows('340 (340–340)'), ...rows('2 (1–2)')] });
    assert.ok(mixed.every(({ spread }) => !spread.isSingle));
  });

  it('call a change beyond noise exactly when the ranges do not overlap', () => {
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

  it('compare each of several columns of one name with itself', () => {
    const figures = figuresOf({
      name: 'admission',
      header: ['queued', 'jobs/s', 'over bare', 'CPU', 'over bare'],
      rows: [['100', '700 (690–710)', '0.10 (0.09–0.11)', '500 (490–510)', '9.00 (8.00–9.50)']],
    });
    assert.deepEqual(
      changes(figures, figures).map(({ ratio }) => ratio),
      [1, 1, 1, 1],
    );
  });
});
