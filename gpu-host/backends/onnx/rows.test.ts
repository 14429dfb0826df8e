import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { SequenceInput } from '../backend.ts';
import { range } from '../testing/scenario.ts';
import type { RunCosts } from './packing.ts';
import { type Row, sharedRows } from './rows.ts';

/** Only gathering costs anything, so the planner merges every shared prefix. */
const COSTS: RunCosts = {
  perRun: 0,
  perToken: 0,
  perRow: 1,
  perPackedRow: 0,
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
  return sharedRows(batch, [...batch.keys()], COSTS);
}

/** The context of one member as the row gathers it. */
function contextOf(row: Row, member: Row['members'][number]): number[] {
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
  test('nothing to share', () => {
    assert.equal(shared([decode(range(0, 9))]), null);
    assert.equal(shared([decode(range(0, 9)), decode(range(20, 29))]), null);
    assert.equal(shared([decode(range(0, 0)), decode(range(0, 0))]), null);
    assert.equal(shared([decode(range(0, 2)), decode(range(0, 2), new Uint8Array(3))]), null);
  });

  test('not when the scores cost more than the gathering', () => {
    const forks = [decode(range(0, 9)), decode(range(0, 9))];
    assert.equal(sharedRows(forks, [0, 1], { ...COSTS, perScore: 100 }), null);
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
