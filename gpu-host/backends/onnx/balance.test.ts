import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { randomModel } from '../../models/testing/random-model.ts';
import type { SequenceInput } from '../backend.ts';
import { Random, range, relativeError, run, sequence } from '../testing/scenario.ts';
import { createOnnxBackend } from './index.ts';
import { packRuns, type RunCosts, rowCost, runCosts } from './packing.ts';
import { dealtRows, isMovable, Planner } from './plan.ts';
import { separateRows } from './rows.ts';

const COSTS: RunCosts = {
  perRun: 2000,
  perToken: 50,
  perColumn: 1,
  perPackedColumn: 0.3,
  perScore: 0.02,
  perSegmentRun: 0,
  perSegment: 0,
};
const SLOTS = 20_000;

interface Shape {
  readonly inputs: number;
  readonly context: number;
}

/** Sequences that share no slots. */
function strangers(shapes: readonly Shape[]): SequenceInput[] {
  let next = 0;
  return shapes.map(({ inputs, context }) => {
    const first = next;
    next += context + inputs;
    return {
      inputs: { kind: 'tokens', tokens: new Uint32Array(inputs) },
      positions: range(context, context + inputs),
      context: range(first, first + context),
      mask: 'causal',
      writes: range(first + context, next),
      output: { kind: 'none' },
    };
  });
}

const shapes = fc.array(
  fc.record({
    inputs: fc.oneof({ weight: 4, arbitrary: fc.constant(1) }, fc.integer({ min: 2, max: 60 })),
    context: fc.nat(250),
  }),
  { minLength: 1, maxLength: 40, size: 'max' },
);

describe('dealtRows', () => {
  test('every sequence is in one row, and no row has more sequences than its deal allows', () => {
    const property = fc.property(shapes, (drawn) => {
      const batch = strangers(drawn);
      const rows = separateRows(batch, [...batch.keys()]);
      for (const [deal, dealt] of dealtRows(batch, rows, COSTS).entries()) {
        const members = dealt.flatMap((row) => row.members.map(({ index }) => index));
        assert.deepEqual(
          members.toSorted((a, b) => a - b),
          [...batch.keys()],
        );
        for (const row of dealt) {
          // The deals allow 2, 4 and 8 sequences per row.
          assert.ok(row.members.length <= 2 ** (deal + 1));
          assert.equal(
            row.tokens,
            row.members.reduce((sum, { sequence }) => sum + sequence.positions.length, 0),
          );
          assert.equal(
            row.context,
            row.members.reduce((sum, { sequence }) => sum + sequence.context.length, 0),
          );
        }
      }
    });
    fc.assert(property, { seed: 11, numRuns: 200 });
  });

  test('the longest goes beside the shortest', () => {
    const batch = strangers([10, 250, 90, 170].map((context) => ({ inputs: 1, context })));
    const [pairs] = dealtRows(batch, separateRows(batch, [0, 1, 2, 3]), COSTS);
    assert.deepEqual(
      pairs.map(({ context }) => context),
      [260, 260],
    );
  });
});

test('isMovable: only a lone causal sequence that wants no attention may move', () => {
  const [lone] = strangers([{ inputs: 1, context: 5 }]);
  const row = (sequence: SequenceInput) => separateRows([sequence], [0])[0];
  assert.ok(isMovable(row(lone)));
  assert.ok(!isMovable(row({ ...lone, attention: true })));
  assert.ok(!isMovable(row({ ...lone, mask: new Uint8Array(6).fill(1) })));
});

describe('Planner', () => {
  test('every sequence runs once, at no higher cost than in separate rows', () => {
    const planner = new Planner(COSTS, 1, SLOTS);
    const property = fc.property(shapes, (drawn) => {
      const batch = strangers(drawn);
      const runs = planner.plan(batch);
      const indices = runs.flat().flatMap(({ members }) => members.map(({ index }) => index));
      assert.deepEqual(
        indices.toSorted((a, b) => a - b),
        [...batch.keys()],
      );
      const cost = runs.reduce((sum, rows) => {
        const tokens = Math.max(...rows.map((row) => row.tokens));
        const context = Math.max(...rows.map((row) => row.context));
        return sum + COSTS.perRun + rows.length * rowCost({ tokens, context }, COSTS);
      }, 0);
      const apart = packRuns(separateRows(batch, [...batch.keys()]), COSTS, 1).cost;
      assert.ok(cost <= apart * (1 + 1e-9));
    });
    fc.assert(property, { seed: 12, numRuns: 200 });
  });

  test('contexts of like lengths get separate rows, and contexts of unlike lengths share rows', () => {
    const planner = new Planner(COSTS, 1, SLOTS);
    const plan = (contexts: readonly number[]) =>
      planner.plan(strangers(contexts.map((context) => ({ inputs: 1, context }))));
    assert.deepEqual(
      plan(new Array(8).fill(200)).map((rows) => rows.length),
      [8],
    );
    assert.deepEqual(
      plan([20, 250, 20, 250, 20, 250, 20, 250]).map((rows) => rows.length),
      [4],
    );
  });
});

test('dealt rows compute what each sequence computes alone', async (context) => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-balance-'));
  const model = await randomModel(directory, {}, 41);
  const backend = await createOnnxBackend(model, { pageSize: 16, pageCount: 200, bits: 32, threads: 1 });
  try {
    const random = new Random(42);
    let next = 0;
    const batch = Array.from({ length: 24 }, (_, i) => {
      const inputs = i % 6 === 0 ? 2 + random.below(20) : 1;
      const first = next;
      const end = first + random.below(200);
      next = end;
      return { inputs, context: range(first, end) };
    });
    const prompt = sequence(model.config, random.tokens(model.config, next), { writes: range(0, next) });
    await backend.forward([prompt]);
    const steps = batch.map((each) =>
      sequence(model.config, random.tokens(model.config, each.inputs), {
        context: each.context,
        output: { kind: 'states', rows: each.inputs },
      }),
    );
    const planner = new Planner(runCosts(model.config, 32, 32), model.config.heads, 200 * 16);
    assert.ok(planner.plan(steps).some((rows) => rows.some(({ members }) => members.length > 1)));
    const together = await run(backend, ...steps);
    let error = 0;
    for (const [i, step] of steps.entries())
      error = Math.max(error, relativeError(together[i], (await run(backend, step))[0]));
    context.diagnostic(`relative error ${error.toExponential(1)}`);
    assert.ok(error <= 1e-5);
  } finally {
    await backend.dispose();
    await rm(directory, { recursive: true, force: true });
  }
});
