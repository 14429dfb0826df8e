import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { allSlots, commonPrefix, maskSlots, pagesFor, planTruncate, planWrite, range } from './pages.ts';

describe('planWrite', () => {
  it('begins with nothing', () => {
    assert.deepEqual(planWrite(0, 5, 0, 16), { allocate: 1, readEnd: 0, writeStart: 0, writeEnd: 1 });
  });

  it('goes on in a page that has room', () => {
    assert.deepEqual(planWrite(5, 1, 1, 16), { allocate: 0, readEnd: 1, writeStart: 0, writeEnd: 1 });
  });

  it('leaves a full page alone', () => {
    assert.deepEqual(planWrite(16, 1, 1, 16), { allocate: 1, readEnd: 1, writeStart: 1, writeEnd: 2 });
  });

  it('uses pages that are held already', () => {
    assert.deepEqual(planWrite(20, 30, 4, 16), { allocate: 0, readEnd: 2, writeStart: 1, writeEnd: 4 });
  });

  it('offers exactly the empty slots that are needed, whatever the layout', () => {
    fc.assert(
      fc.property(
        fc.nat({ max: 200 }),
        fc.integer({ min: 1, max: 100 }),
        fc.nat({ max: 20 }),
        fc.integer({ min: 8, max: 32 }),
        (cached, count, spare, pageSize) => {
          const held = pagesFor(cached, pageSize) + spare;
          const plan = planWrite(cached, count, held, pageSize);
          assert.equal(plan.readEnd, pagesFor(cached, pageSize));
          const empty = plan.writeEnd * pageSize - cached;
          assert.ok(empty >= count && empty - count < pageSize);
          assert.ok(held + plan.allocate >= plan.writeEnd);
          assert.ok(plan.allocate === 0 || held + plan.allocate === plan.writeEnd);
          assert.equal(plan.writeStart, Math.floor(cached / pageSize));
        },
      ),
      { seed: 3, numRuns: 500 },
    );
  });
});

describe('planTruncate', () => {
  it('copies nothing at a page border', () => assert.deepEqual(planTruncate(32, 16), { keep: 2, copySlots: 0 }));
  it('copies the slots of the page in which the cut falls', () =>
    assert.deepEqual(planTruncate(35, 16), { keep: 2, copySlots: 3 }));
});

describe('maskSlots', () => {
  it('says which pages it touched', () => {
    const masks: number[] = [];
    assert.deepEqual(maskSlots(masks, 14, 33, true, 16), [0, 1, 2]);
    assert.deepEqual(masks, [0b1100_0000_0000_0000, allSlots(16), 1]);
    assert.deepEqual(maskSlots(masks, 5, 5, true, 16), []);
  });

  it('keeps what a plain set of slots would, over any ranges', () => {
    const step = fc.record({ from: fc.nat({ max: 90 }), length: fc.nat({ max: 40 }), hidden: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 12 }), fc.integer({ min: 8, max: 32 }), (steps, pageSize) => {
        const masks: number[] = [];
        const hiddenSlots = new Set<number>();
        for (const { from, length, hidden } of steps) {
          maskSlots(masks, from, from + length, hidden, pageSize);
          for (let slot = from; slot < from + length; slot++) {
            if (hidden) hiddenSlots.add(slot);
            else hiddenSlots.delete(slot);
          }
        }
        masks.forEach((mask, page) => {
          // Signed numbers of 32 bits, which a guest's binding carries whole.
          assert.equal(mask | 0, mask);
          for (let slot = 0; slot < pageSize; slot++) {
            assert.equal((mask >>> slot) & 1, hiddenSlots.has(page * pageSize + slot) ? 1 : 0);
          }
          const whole = Array.from({ length: pageSize }, (_, slot) => hiddenSlots.has(page * pageSize + slot));
          assert.equal(mask === allSlots(pageSize), whole.every(Boolean));
        });
      }),
      { seed: 5, numRuns: 500 },
    );
  });
});

describe('lists of tokens', () => {
  it('count positions from a start', () => assert.deepEqual([...range(7, 3)], [7, 8, 9]));
  it('share a beginning', () => {
    assert.equal(commonPrefix([1, 2, 3], [1, 2, 4]), 2);
    assert.equal(commonPrefix([1, 2], [1, 2, 4]), 2);
    assert.equal(commonPrefix([], [1]), 0);
  });
});
