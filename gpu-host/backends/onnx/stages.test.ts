import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { SequenceInput } from '../backend.ts';
import { Random, range } from '../testing/scenario.ts';
import type { RunCosts } from './packing.ts';
import { DependencyFinder, planGroups } from './plan.ts';
import { columnOf, linkedRow } from './rows.ts';

const COSTS: RunCosts = {
  perRun: 1000,
  perToken: 10,
  perColumn: 1,
  perPackedColumn: 0,
  perScore: 1,
  perSegmentRun: 0,
  perSegment: 0,
};
const SLOTS = 400;

function sequence(context: Uint32Array, writes: Uint32Array, inputs = writes.length): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: new Uint32Array(inputs) },
    positions: range(context.length, context.length + inputs),
    context,
    mask: 'causal',
    writes,
    output: { kind: 'none' },
  };
}

/** A batch in which each sequence writes slots of its own, and reads some old slots and some slots that earlier sequences write. */
function randomBatch(seed: number, count: number): SequenceInput[] {
  const random = new Random(seed);
  const slots = random.permutation(SLOTS);
  const written: number[] = [];
  let next = 100;
  return Array.from({ length: count }, () => {
    const old = slots.slice(0, random.below(30));
    const read = random.next() < 0.6 ? written.filter(() => random.next() < 0.3) : [];
    const inputs = 1 + random.below(8);
    const writes = slots.slice(next, next + random.below(2) * inputs);
    next += inputs;
    written.push(...writes);
    return sequence(Uint32Array.of(...old, ...read), writes, inputs);
  });
}

/** For each sequence, by definition: the earlier sequences of the batch that write slots of its context. */
function writersOf(batch: readonly SequenceInput[]): number[][] {
  return batch.map(({ context }, reader) =>
    batch.flatMap(({ writes }, writer) =>
      writer < reader && writes.some((slot) => context.includes(slot)) ? [writer] : [],
    ),
  );
}

const batches = fc.record({ seed: fc.integer(), count: fc.integer({ min: 1, max: 12 }) });

describe('DependencyFinder', () => {
  test('finds which sequence reads whose writes, batch after batch', () => {
    const finder = new DependencyFinder(SLOTS);
    const property = fc.property(batches, ({ seed, count }) => {
      const batch = randomBatch(seed, count);
      const expected = writersOf(batch);
      const found = finder.find(batch);
      assert.deepEqual(found, expected.some(({ length }) => length > 0) ? expected : null);
    });
    fc.assert(property, { seed: 8, numRuns: 300 });
  });
});

describe('planGroups', () => {
  const plan = (batch: readonly SequenceInput[], costs = COSTS, heads = 1) =>
    planGroups(batch, writersOf(batch), costs, heads);

  test('every sequence is in one group, and those that it reads from are in this group or in an earlier stage', () => {
    const property = fc.property(batches, fc.constantFrom(0, 30, 1e9), ({ seed, count }, perRun) => {
      const batch = randomBatch(seed, count);
      const groups = plan(batch, { ...COSTS, perRun });
      const all = groups.flatMap(({ members }) => members);
      assert.deepEqual(
        all.toSorted((a, b) => a - b),
        [...batch.keys()],
      );
      const groupOf = (index: number) => groups.find(({ members }) => members.includes(index));
      writersOf(batch).forEach((writers, reader) => {
        for (const writer of writers) {
          const [from, to] = [groupOf(writer), groupOf(reader)];
          assert.ok(from !== undefined && to !== undefined);
          assert.ok(from === to || from.stage < to.stage);
        }
      });
      for (const { members } of groups)
        assert.deepEqual(
          members,
          members.toSorted((a, b) => a - b),
        );
    });
    fc.assert(property, { seed: 9, numRuns: 300 });
  });

  test('sequences that read from each other share a row, and an unrelated sequence is alone', () => {
    const batch = [
      sequence(range(0, 5), range(10, 14)),
      sequence(range(50, 60), range(60, 61)),
      sequence(range(10, 14), range(14, 16)),
      sequence(range(14, 16), range(16, 17)),
    ];
    assert.deepEqual(
      plan(batch).map(({ members }) => members),
      [[1], [0, 2, 3]],
    );
  });

  test('a reader waits for the next stage where a shared row would hide too many scores, need too much memory or miscount a slot', () => {
    const reader = sequence(range(0, 4), range(10, 11));
    const batch = [sequence(new Uint32Array(0), range(0, 4)), reader];
    const apart = [
      { stage: 0, members: [0] },
      { stage: 1, members: [1] },
    ];
    assert.equal(plan(batch).length, 1);
    assert.deepEqual(plan(batch, COSTS, 1 << 27), apart);
    assert.deepEqual(plan([batch[0], { ...reader, context: Uint32Array.of(1, 1) }]), apart);
    // A shared row has scores between each sequence and the other's long context. It pays only when a further run costs more.
    const far = [
      sequence(range(100, 200), range(0, 40)),
      sequence(Uint32Array.of(0, ...range(200, 300)), range(40, 80)),
    ];
    assert.deepEqual(plan(far, { ...COSTS, perRun: 10 }), apart);
    assert.equal(plan(far, { ...COSTS, perRun: 1e6 }).length, 1);
  });
});

test('linkedRow: links lead from each context slot to the input that writes it, or else to the gathered slot', () => {
  const property = fc.property(batches, ({ seed, count }) => {
    const batch = randomBatch(seed, count);
    const row = linkedRow(batch, [...batch.keys()]);
    const columns: (number | null)[] = [];
    for (const { sequence: each } of row.members) {
      for (let i = 0; i < each.positions.length; i++) columns.push(each.writes[i] ?? null);
    }
    assert.equal(columns.length, row.tokens);
    columns.push(...(row.slots ?? []));
    assert.equal(columns.length, row.tokens + row.context);
    for (const { index, sequence: each, firstInput, links } of row.members) {
      const found = Array.from(links ?? [], (link) => columnOf(link, row.tokens));
      assert.deepEqual(
        found.map((column) => columns[column]),
        [...each.context],
      );
      // Slots that earlier members write are read from these members; the others are gathered once.
      for (const [j, column] of found.entries()) {
        const isWritten = batch.slice(0, index).some(({ writes }) => writes.includes(each.context[j]));
        assert.equal(column < firstInput, isWritten);
      }
    }
    assert.equal(new Set(row.slots).size, row.context);
  });
  fc.assert(property, { seed: 10, numRuns: 300 });
});
