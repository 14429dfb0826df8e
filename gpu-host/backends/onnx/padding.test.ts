import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { randomModel } from '../../models/testing/random-model.ts';
import type { SequenceInput } from '../backend.ts';
import { Random, range, sequence } from '../testing/scenario.ts';
import { createOnnxBackend } from './index.ts';
import type { RunCosts } from './packing.ts';
import { jointRow, PaddingMeter, separateRows } from './rows.ts';

const COSTS: RunCosts = {
  perRun: 1000,
  perToken: 8,
  perColumn: 4,
  perPackedColumn: 2,
  perScore: 1,
  perSegmentRun: 0,
  perSegment: 0,
};

function step(context: number): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: new Uint32Array(1) },
    positions: Uint32Array.of(context),
    context: range(0, context),
    mask: 'causal',
    writes: new Uint32Array(0),
    output: { kind: 'none' },
  };
}

test('rows shorter than their run count as padding', () => {
  const meter = new PaddingMeter(COSTS);
  assert.equal(meter.share(), 0);
  meter.add(separateRows([step(9), step(4)], [0, 1]), { tokens: 1, width: 10, blind: false });
  // The run computes two rows of 10 columns, 8 + 10 × (4 + 1) = 58 each. The second row needs only 5 columns, 8 + 5 × (4 + 1) = 33.
  assert.equal(meter.share(), 1 - (58 + 33) / 116);
});

test('scores between unrelated sequences in one row count as padding, too', () => {
  const meter = new PaddingMeter(COSTS);
  const batch = [step(9), step(4)];
  meter.add([jointRow([0, 1], batch)], { tokens: 2, width: 15, blind: false });
  // The row costs 2 × 8 + 15 × (4 + 2) + 30 scores = 136. The two steps want 10 + 5 of the scores.
  assert.equal(meter.share(), 1 - (16 + 90 + 15) / 136);
});

test('a single prompt has no padding', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-padding-'));
  const model = await randomModel(directory, {}, 1);
  const backend = await createOnnxBackend(model, { pageSize: 8, pageCount: 8, bits: 32, threads: 1 });
  try {
    assert.equal(backend.paddingShare?.(), 0);
    const tokens = new Random(1).tokens(model.config, 10);
    await backend.forward([sequence(model.config, tokens, { writes: range(0, 10), output: { kind: 'none' } })]);
    assert.equal(backend.paddingShare?.(), 0);
  } finally {
    await backend.dispose();
    await rm(directory, { recursive: true, force: true });
  }
});
