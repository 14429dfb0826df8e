import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { PageEstimator } from './expected-pages.ts';

test('growth is followed at once, shrinkage slowly, and what is declared wins', () => {
  const pages = new PageEstimator();
  assert.deepEqual(pages.expect('f@1'), {});
  pages.observe('f@1', { m: 10 });
  assert.deepEqual(pages.expect('f@1'), { m: 10 });
  pages.observe('f@1', { m: 40, n: 1 });
  assert.deepEqual(pages.expect('f@1'), { m: 40, n: 1 });
  pages.observe('f@1', { m: 10 });
  assert.deepEqual(pages.expect('f@1'), { m: 37, n: 1 });
  for (let i = 0; i < 100; i += 1) pages.observe('f@1', { m: 10 });
  assert.deepEqual(pages.expect('f@1'), { m: 11, n: 1 });
  assert.deepEqual(pages.expect('f@1', { m: 5 }), { m: 5, n: 1 });
  assert.deepEqual(pages.expect('f@2'), {});
});

test('the estimate is at least the last run and at most the largest', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(1000), { minLength: 1, maxLength: 50 }), (runs) => {
      const pages = new PageEstimator();
      for (const m of runs) pages.observe('f', { m });
      const expected = pages.expect('f').m ?? -1;
      assert.ok(expected >= (runs.at(-1) ?? 0) && expected <= Math.max(...runs));
    }),
    { seed: 20261104 },
  );
});
