import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Pace } from './pace.ts';

const POLICY = { most: 1024, least: 32, lagMs: 10 };

describe('the inferlet limit of a runtime', () => {
  test('stays at the maximum while the thread keeps up', () => {
    const pace = new Pace(POLICY);
    for (const running of [0, 1, 900, 1024]) assert.equal(pace.review(1, running), 1024);
  });

  test('falls below the running count on lag, waits until fewer run, and rises without lag', () => {
    const pace = new Pace(POLICY);
    // A cut leaves three quarters of the running inferlets; a rise adds a quarter of the limit.
    assert.equal(pace.review(40, 100), 75);
    assert.equal(pace.review(40, 100), 75, 'the limit ends no running inferlet');
    assert.equal(pace.review(40, 70), 52);
    assert.equal(pace.review(8, 52), 52);
    assert.equal(pace.review(4, 52), 65);
    assert.equal(pace.isOpen, false);
    let reviews = 0;
    while (pace.review(0, 0) < 1024) reviews += 1;
    assert.ok(reviews < 15, `${reviews} reviews`);
    assert.equal(pace.isOpen, true);
  });

  test('does not change on a lag while only a few inferlets run', () => {
    const pace = new Pace(POLICY);
    for (const running of [0, 2, 32]) {
      assert.equal(pace.mayCut(running), false);
      assert.equal(pace.review(500, running), 1024);
    }
    assert.equal(pace.mayCut(33), true);
  });

  test('settles near the largest number of inferlets whose lag is within the bound, when each adds an equal lag', () => {
    fc.assert(
      fc.property(fc.double({ min: 0.02, max: 0.5, noNaN: true }), (lagOfEachMs) => {
        const pace = new Pace(POLICY);
        let running = 0;
        const settledCounts: number[] = [];
        for (let i = 0; i < 100; i++) {
          // Arrivals fill every free place; a quarter of the inferlets ends between reviews.
          running = Math.max(pace.limit, Math.ceil(running * 0.75));
          pace.review(running * lagOfEachMs, running);
          if (i >= 50) settledCounts.push(running);
        }
        const sustainable = POLICY.lagMs / lagOfEachMs;
        for (const count of settledCounts) {
          assert.ok(count <= Math.max(32, 1.3 * sustainable + 1), `${count} ran, ${sustainable} suffice`);
          assert.ok(count >= Math.min(1024, 0.3 * sustainable), `${count} ran, ${sustainable} are possible`);
        }
      }),
      { seed: 20261120 },
    );
  });

  test('stays within its bounds', () => {
    const lags = fc.array(fc.tuple(fc.double({ min: 0, max: 1000, noNaN: true }), fc.nat(2000)));
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2000 }), lags, (most, reviews) => {
        const pace = new Pace({ ...POLICY, most });
        for (const [lagMs, running] of reviews) {
          const limit = pace.review(lagMs, running);
          assert.ok(limit >= Math.min(32, most) && limit <= most);
        }
      }),
      { seed: 20261120 },
    );
  });
});
