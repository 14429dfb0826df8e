import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { SequenceInput } from '../backend.ts';
import { range } from '../testing/scenario.ts';
import { type RunCosts, rowCost } from './packing.ts';
import { columnOf, type Row, sharedRows } from './rows.ts';

/** Only gathering costs anything, so the planner merges every shared prefix. */
const COSTS: RunCosts = {
  perRun: 0,
  perToken: 0,
  perColumn: 1,
  perPackedColumn: 0,
  perScore: 0,
  perSegmentRun: 0,
  perSegment: 0,
};

function decode(context: Uint32Array, mask: SequenceInput['mask'] = 'causal', inputs = 1): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: new Uint32Array(inputs) },
    positions: range(context.length, context.length + inputs),
    context,
    mask,
    writes: new Uint32Array(0),
    output: { kind: 'none' },
  };
}

function shared(batch: readonly SequenceInput[]): Row[] | null {
  return sharedRows(batch, [...batch.keys()], COSTS, 1);
}

/** The context of one member as the row gathers it. */
function contextOf(row: Row, member: Row['members'][number]): number[] {
  const { slots } = row;
  if (slots) return Array.from(member.links ?? [], (link) => slots[columnOf(link, row.tokens) - row.tokens] ?? -1);
  const gathered = new Array<number>(row.context);
  for (const { sequence, firstOwn } of row.members) {
    sequence.context.subarray(0, row.shared).forEach((slot, i) => {
      gathered[i] = slot;
    });
    sequence.context.subarray(row.shared).forEach((slot, i) => {
      gathered[firstOwn + i] = slot;
    });
  }
  const own = member.sequence.context.length - row.shared;
  return [...gathered.slice(0, row.shared), ...gathered.slice(member.firstOwn, member.firstOwn + own)];
}

describe('sharedRows', () => {
  test('shares nothing when sequences have no slot in common', () => {
    assert.equal(shared([decode(range(0, 9))]), null);
    assert.equal(shared([decode(range(0, 9)), decode(range(20, 29))]), null);
    assert.equal(shared([decode(range(0, 0)), decode(range(0, 0))]), null);
    assert.equal(shared([decode(range(0, 2)), decode(range(0, 2), new Uint8Array(3))]), null);
  });

  test('shares nothing when the scores cost more than the gathering', () => {
    const forks = [decode(range(0, 9)), decode(range(0, 9))];
    assert.equal(sharedRows(forks, [0, 1], { ...COSTS, perScore: 100 }, 1), null);
  });

  test('shares nothing when a row would keep more scores at once than are allowed', () => {
    // The row of both forks has 2 inputs × 11 columns = 22 scores a head. The bound is 2²⁷, between 22 × 2²² and 22 × 2²³.
    const forks = [decode(range(0, 9)), decode(range(0, 9))];
    assert.equal(sharedRows(forks, [0, 1], COSTS, 2 ** 22)?.length, 1);
    assert.equal(sharedRows(forks, [0, 1], COSTS, 2 ** 23), null);
  });

  test('forks of forks share all slots that they have in common, and split where that is cheaper', () => {
    // Each context has 200 slots common to all, 100 of one of four branches, 40 of one of the branch's two halves, and one of its own.
    const forks = Array.from({ length: 32 }, (_, i) => {
      const [branch, half] = [i % 4, i % 8];
      const path = [range(0, 200), range(1000 * (branch + 1), 1000 * (branch + 1) + 100)];
      return decode(
        Uint32Array.of(...path.flatMap((part) => [...part]), ...range(9000 + 50 * half, 9040 + 50 * half), 20_000 + i),
      );
    });
    const [row, ...others] = shared(forks) ?? [];
    assert.deepEqual([others.length, row?.context], [0, 200 + 4 * 100 + 8 * 40 + 32]);
    // Where scores cost more, four rows are cheaper: they gather the 200 common slots four times, but hide fewer scores.
    const split = sharedRows(forks, [...forks.keys()], { ...COSTS, perScore: 0.05 }, 1) ?? [];
    assert.deepEqual(
      split.map(({ members, context }) => [members.length, context]),
      Array.from({ length: 4 }, () => [8, 200 + 100 + 2 * 40 + 8]),
    );
  });

  test('rows of random trees gather each slot once, and cost less than separate rows for their members', () => {
    // Contexts are paths in a tree: each step goes to one of two children, whose slots follow from the path.
    const path = fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 5 });
    const sizes = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 5, maxLength: 5 });
    const costs = fc.record({
      perScore: fc.constantFrom(0, 0.01, 0.1, 1),
      perToken: fc.nat(3),
      perPackedColumn: fc.nat(1),
    });
    const property = fc.property(
      fc.array(path, { minLength: 2, maxLength: 14 }),
      sizes,
      costs,
      (paths, lengths, rates) => {
        const batch = paths.map((steps) => {
          let node = 1;
          const slots = steps.flatMap((step, depth) => {
            node = node * 2 + step;
            return [...range(node * 10, node * 10 + (lengths[depth] ?? 1))];
          });
          return decode(Uint32Array.from([1, 2, 3, ...slots]));
        });
        const treeCosts = { ...COSTS, ...rates };
        const rows = sharedRows(batch, [...batch.keys()], treeCosts, 1);
        if (rows === null) return;
        const seen = rows.flatMap(({ members }) => members.map(({ index }) => index));
        assert.deepEqual(
          seen.toSorted((a, b) => a - b),
          batch.map((_, i) => i),
        );
        const costOf = (row: { tokens: number; context: number }) => rowCost(row, treeCosts);
        let [together, apart] = [0, 0];
        for (const row of rows) {
          const contexts = row.members.map((member) => contextOf(row, member));
          for (const [i, { index }] of row.members.entries())
            assert.deepEqual(contexts[i], [...(batch[index]?.context ?? [])]);
          assert.equal(row.context, new Set(contexts.flat()).size);
          together += costOf(row);
          for (const { length } of contexts) apart += costOf({ tokens: 1, context: length });
        }
        assert.ok(together < apart);
      },
    );
    fc.assert(property, { seed: 5, numRuns: 300 });
  });

  test('every sequence is in one row and finds its own context there', () => {
    const fork = fc.record({
      prefix: fc.nat(3),
      shared: fc.nat(20),
      own: fc.nat(5),
      inputs: fc.integer({ min: 1, max: 3 }),
    });
    const property = fc.property(fc.array(fork, { minLength: 2, maxLength: 12 }), (forks) => {
      const batch = forks.map(({ prefix, shared, own, inputs }, i) => {
        const leading = range(prefix * 100, prefix * 100 + shared);
        return decode(Uint32Array.of(...leading, ...range(1000 + i * 10, 1000 + i * 10 + own)), 'causal', inputs);
      });
      const rows = shared(batch);
      if (rows === null) return;
      const seen = rows.flatMap(({ members }) => members.map(({ index }) => index));
      assert.deepEqual(
        seen.toSorted((a, b) => a - b),
        batch.map((_, i) => i),
      );
      for (const row of rows) {
        let inputs = 0;
        for (const member of row.members) {
          assert.equal(member.firstInput, inputs);
          inputs += member.sequence.positions.length;
          assert.deepEqual(contextOf(row, member), [...batch[member.index].context]);
        }
        assert.equal(row.tokens, inputs);
      }
    });
    fc.assert(property, { seed: 3, numRuns: 200 });
  });
});
