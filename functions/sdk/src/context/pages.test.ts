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
  slotOfForgotten,
} from './pages.ts';

describe('planWrite', () => {
  it('allocates the first page of an empty sequence', () => {
    assert.deepEqual(planWrite(0, 5, 0, 16), { allocate: 1, readEnd: 0, writeStart: 0, writeEnd: 1 });
  });

  it('continues in a page that has room', () => {
    assert.deepEqual(planWrite(5, 1, 1, 16), { allocate: 0, readEnd: 1, writeStart: 0, writeEnd: 1 });
  });

  it('keeps a full page unchanged', () => {
    assert.deepEqual(planWrite(16, 1, 1, 16), { allocate: 1, readEnd: 1, writeStart: 1, writeEnd: 2 });
  });

  it('uses spare pages before it allocates any', () => {
    assert.deepEqual(planWrite(20, 30, 4, 16), { allocate: 0, readEnd: 2, writeStart: 1, writeEnd: 4 });
  });

  it('offers enough empty slots with as few pages as possible, for any layout', () => {
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
  it('returns the pages that it changed', () => {
    const masks: number[] = [];
    assert.deepEqual(maskSlots(masks, 14, 33, true, 16), [0, 1, 2]);
    assert.deepEqual(masks, [0b1100_0000_0000_0000, allSlots(16), 1]);
    assert.deepEqual(maskSlots(masks, 5, 5, true, 16), []);
  });

  it('hides the same slots as a plain set, over random ranges', () => {
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
          // Masks are signed 32-bit numbers, which the guest's bindings pass unchanged.
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
  it('frees a page whose remaining slots were hidden before', () => {
    const masks: number[] = [];
    maskSlots(masks, 8, 16, true, 16);
    assert.deepEqual(planForget(masks, 0, 10, 16), { first: 0, count: 1, masked: [], end: 16 });
    assert.deepEqual(planForget([], 3, 40, 16), { first: 1, count: 1, masked: [0, 2], end: 40 });
    assert.deepEqual(planForget([], 3, 10, 16), { first: 0, count: 0, masked: [0], end: 10 });
  });

  it('keeps every page that has a visible slot in place, over random masks and slides', () => {
    const TOKENS = 100;
    const step = fc.record({ from: fc.nat(TOKENS - 1), length: fc.nat(30), to: fc.nat(TOKENS) });
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 12 }),
        fc.nat(20),
        fc.integer({ min: 8, max: 32 }),
        (steps, sink, pageSize) => {
          // As in a sequence, token i has slot i + skew. Each step hides tokens, then forgets those from `sink` to `to`.
          const masks: number[] = new Array(pagesFor(TOKENS, pageSize)).fill(0);
          const hidden = new Set<number>();
          /** The first token of each remaining page. */
          const pages = masks.map((_, page) => page * pageSize);
          let [floor, skew] = [0, 0];
          for (const { from, length, to } of steps) {
            const [first, last] = [Math.max(from, floor), Math.min(from + length, TOKENS)];
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
            assert.ok(plan.count === 0 || pages.length * pageSize - skew === pagesFor(TOKENS, pageSize) * pageSize);
            // The skew locates every token from `floor` on.
            for (let token = floor; token < TOKENS; token++) {
              const page = Math.floor((token + skew) / pageSize);
              assert.equal((pages[page] as number) + ((token + skew) % pageSize), token);
            }
            // A forgotten token keeps its slot as long as its page remains.
            for (let token = 0; token < floor; token++) {
              const page = pages.findIndex((begin) => token >= begin && token < begin + pageSize);
              const slot = page === -1 ? -1 : page * pageSize + (token % pageSize);
              assert.equal(slotOfForgotten(token, floor, skew, pageSize), slot);
            }
            // The remaining pages show exactly the tokens that are not hidden.
            const shown = pages.flatMap((begin, page) =>
              Array.from({ length: pageSize }, (_, slot) => slot)
                .filter((slot) => begin + slot < TOKENS && (((masks[page] as number) >>> slot) & 1) === 0)
                .map((slot) => begin + slot),
            );
            assert.deepEqual(
              shown,
              Array.from({ length: TOKENS }, (_, token) => token).filter((token) => !hidden.has(token)),
            );
          }
        },
      ),
      { seed: 7, numRuns: 500 },
    );
  });
});

describe('gatherMasks', () => {
  it('copies hidden slots as hidden', () => {
    assert.deepEqual(gatherMasks([0b10, 0b1], [0, 1, 8, 9], 8), [0b110]);
    assert.deepEqual(gatherMasks([0, 0b100], range(0, 16), 8), [0, 0b100]);
    assert.deepEqual(gatherMasks([1 << 31], [31], 32), [1]);
    assert.deepEqual(gatherMasks([], [3, 4], 8), []);
  });
});

describe('helpers for token lists', () => {
  it('range counts positions from a start', () => assert.deepEqual([...range(7, 3)], [7, 8, 9]));
  it('commonPrefix returns the length of the shared beginning', () => {
    assert.equal(commonPrefix([1, 2, 3], [1, 2, 4]), 2);
    assert.equal(commonPrefix([1, 2], [1, 2, 4]), 2);
    assert.equal(commonPrefix([], [1]), 0);
  });
});
