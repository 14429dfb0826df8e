import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { packRuns, type RowShape, type RunCosts } from './packing.ts';

const COSTS: RunCosts = {
  perRun: 800,
  perToken: 40,
  perColumn: 1,
  perPackedColumn: 0.5,
  perScore: 0.1,
  perSegmentRun: 0,
  perSegment: 0,
};
/** The bound of `packing.ts` on the scores of a run. */
const MAX_SCORES = 1 << 27;
const MAX_TOKENS = 300;
const MAX_CONTEXT = 2000;
const shapes = fc.array(fc.record({ tokens: fc.integer({ min: 1, max: MAX_TOKENS }), context: fc.nat(MAX_CONTEXT) }), {
  maxLength: 40,
  size: 'max',
});

function costOf(rows: readonly RowShape[]): number {
  const tokens = Math.max(...rows.map((row) => row.tokens));
  const width = Math.max(...rows.map((row) => row.context)) + tokens;
  const perColumn = COSTS.perColumn + (tokens > 1 ? COSTS.perPackedColumn : 0);
  return COSTS.perRun + rows.length * (tokens * COSTS.perToken + width * (perColumn + tokens * COSTS.perScore));
}

describe('packRuns', () => {
  test('every row is in one run, and neither one run for each row nor one run for all is cheaper', () => {
    const property = fc.property(shapes, (rows) => {
      const { runs, cost } = packRuns(rows, COSTS, 1);
      assert.deepEqual(
        runs.flat().toSorted((a, b) => a - b),
        rows.map((_, i) => i),
      );
      const costs = runs.map((run) => costOf(run.map((i) => rows[i])));
      const total = costs.reduce((sum, each) => sum + each, 0);
      assert.ok(Math.abs(total - cost) <= 1e-6 * (1 + cost));
      if (rows.length === 0) return;
      const alone = rows.reduce((sum, row) => sum + costOf([row]), 0);
      assert.ok(cost <= alone * (1 + 1e-9));
      // A single run of all rows may be cheaper only when its scores exceed the bound.
      if (rows.length * MAX_TOKENS * (MAX_CONTEXT + MAX_TOKENS) <= MAX_SCORES)
        assert.ok(cost <= costOf(rows) * (1 + 1e-9));
    });
    fc.assert(property, { seed: 7, numRuns: 300 });
  });

  test('decode steps with similar contexts share a run', () => {
    const rows = Array.from({ length: 32 }, (_, i) => ({ tokens: 1, context: 100 + i }));
    assert.equal(packRuns(rows, COSTS, 6).runs.length, 1);
  });

  test('decode steps do not share a run with a prefill', () => {
    const rows = [...Array.from({ length: 16 }, () => ({ tokens: 1, context: 100 })), { tokens: 200, context: 0 }];
    const { runs } = packRuns(rows, COSTS, 6);
    assert.deepEqual(runs.map((run) => run.length).toSorted(), [1, 16].toSorted());
  });

  test('rows whose scores would need too much memory get several runs', () => {
    const rows = Array.from({ length: 8 }, () => ({ tokens: 1000, context: 3000 }));
    const heads = 32;
    const { runs } = packRuns(rows, COSTS, heads);
    for (const run of runs) assert.ok(run.length * 1000 * (3000 + 1000) * heads <= MAX_SCORES || run.length === 1);
    assert.equal(runs.flat().length, 8);
  });
});
