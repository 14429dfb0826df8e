import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  allSlots,
  commonPrefix,
  gatherMasks,
  maskSlots,
  pagesFor,
  planForget,
  planTruncate,
  planWrite,
  range,
} from './pages.ts';

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

describe('planForget', () => {
  it('counts the rest of a page that was hidden before as gone with it', () => {
    const masks: number[] = [];
    maskSlots(masks, 8, 16, true, 16);
    assert.deepEqual(planForget(masks, 0, 10, 16), { first: 0, count: 1, masked: [], end: 16 });
    assert.deepEqual(planForget([], 3, 40, 16), { first: 1, count: 1, masked: [0, 2], end: 40 });
    assert.deepEqual(planForget([], 3, 10, 16), { first: 0, count: 0, masked: [0], end: 10 });
  });

  it('leaves, over any masks and slides, every page in place whose slots are not all out of sight', () => {
    const step = fc.record({ from: fc.nat(99), length: fc.nat(30), to: fc.nat(100) });
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 12 }),
        fc.nat(20),
        fc.integer({ min: 8, max: 32 }),
        (steps, sink, pageSize) => {
          // As a sequence does it: token i has slot i + skew.
          const masks: number[] = new Array(pagesFor(100, pageSize)).fill(0);
          const hidden = new Set<number>();
          /** The first token of each page that is left. */
          const pages = masks.map((_, page) => page * pageSize);
          let [floor, skew] = [0, 0];
          for (const { from, length, to } of steps) {
            const [first, last] = [Math.max(from, floor), Math.min(from + length, 100)];
            if (first < last) maskSlots(masks, first + skew, last + skew, true, pageSize);
            for (let token = first; token < last; token++) hidden.add(token);
            const start = Math.max(sink, floor);
            if (to <= start) continue;
            const plan = planForget(masks, start + skew, to + skew, pageSize);
            for (let token = start; token < to; token++) hidden.add(token);
            floor = plan.end - skew;
            pages.splice(plan.first, plan.count);
            masks.splice(plan.first, plan.count);
            skew -= plan.count * pageSize;
            assert.ok(plan.count === 0 || pages.length * pageSize - skew === pagesFor(100, pageSize) * pageSize);
            // What can still be named is where the skew says.
            for (let token = floor; token < 100; token++) {
              const page = Math.floor((token + skew) / pageSize);
              assert.equal((pages[page] as number) + ((token + skew) % pageSize), token);
            }
            // What is left shows exactly what is not hidden.
            const shown = pages.flatMap((begin, page) =>
              Array.from({ length: pageSize }, (_, slot) => slot)
                .filter((slot) => begin + slot < 100 && (((masks[page] as number) >>> slot) & 1) === 0)
                .map((slot) => begin + slot),
            );
            assert.deepEqual(
              shown,
              Array.from({ length: 100 }, (_, token) => token).filter((token) => !hidden.has(token)),
            );
          }
        },
      ),
      { seed: 7, numRuns: 500 },
    );
  });
});

describe('gatherMasks', () => {
  it('takes along what is hidden', () => {
    assert.deepEqual(gatherMasks([0b10, 0b1], [0, 1, 8, 9], 8), [0b110]);
    assert.deepEqual(gatherMasks([0, 0b100], range(0, 16), 8), [0, 0b100]);
    assert.deepEqual(gatherMasks([1 << 31], [31], 32), [1]);
    assert.deepEqual(gatherMasks([], [3, 4], 8), []);
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
