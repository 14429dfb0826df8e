import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import type { SequenceInput, StepShape } from '../backend.ts';
import { take } from '../testing/mask-kinds.ts';
import { batches, RANDOM_POOL, randomSteps } from '../testing/random-batch.ts';
import { relativeError, values } from '../testing/scenario.ts';
import { createOnnxBackend } from './index.ts';
import { runCosts } from './packing.ts';
import { Planner } from './plan.ts';
import { RunBounds } from './run-bounds.ts';

describe('the bounds of runs', () => {
  let directory: string;
  let model: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-bounds-'));
    model = await randomModel(directory, {}, 5);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('grow with each size of a step', () => {
    const { config } = model;
    const bounds = new RunBounds(config, runCosts(config, 32, 32), 1);
    const size = fc.nat(5000);
    const shape: fc.Arbitrary<StepShape> = fc.record({
      inputs: fc.integer({ min: 1, max: 600 }),
      context: size,
      outputs: size,
    });
    fc.assert(
      fc.property(shape, fc.constantFrom<keyof StepShape>('inputs', 'context', 'outputs'), (step, grown) => {
        const larger = { ...step, [grown]: step[grown] + 1 };
        assert.ok(bounds.bytes(larger) > bounds.bytes(step));
        assert.ok(bounds.work(larger) >= bounds.work(step));
      }),
    );
    assert.ok(bounds.work({ inputs: 8, context: 0, outputs: 1 }) >= 8);
  });

  it('split a batch into runs that fit, each sequence once, and leave a batch that fits as it is', () => {
    const { config } = model;
    const costs = runCosts(config, 32, 32);
    const slotCount = RANDOM_POOL.pageSize * RANDOM_POOL.pageCount;
    const free = new Planner(costs, config.heads, slotCount);
    const bytes = fc.integer({ min: 1, max: 2 << 20 });
    let splits = 0;
    fc.assert(
      fc.property(batches, bytes, (cases, maxBytes) => {
        const bounds = new RunBounds(config, costs, maxBytes);
        const bounded = new Planner(costs, config.heads, slotCount, bounds);
        for (const step of randomSteps(config, cases)) {
          if (step.kind !== 'forward') continue;
          const runs = bounded.plan(step.batch);
          const members = runs.flatMap((run) => run.flatMap((row) => row.members.map(({ index }) => index)));
          assert.deepEqual(
            members.toSorted((a, b) => a - b),
            [...step.batch.keys()],
          );
          for (const run of runs) {
            const [row] = run;
            if (run.length === 1 && row?.members.length === 1) continue;
            const shape = {
              inputs: Math.max(...run.map(({ tokens }) => tokens)),
              context: Math.max(...run.map(({ context }) => context)),
              outputs: run.flatMap((each) => each.members).reduce((sum, { sequence }) => sum + topRows(sequence), 0),
            };
            const { outputs } = shape;
            const ofRows = run.length * bounds.bytes({ ...shape, outputs: 0 });
            assert.ok(ofRows + bounds.bytes(shape) - bounds.bytes({ ...shape, outputs: 0 }) <= maxBytes, `${outputs}`);
          }
          const plain = free.plan(step.batch);
          if (runs.length > plain.length) splits++;
          else assert.deepEqual(runs, plain);
        }
      }),
      { seed: 1, numRuns: 200 },
    );
    assert.ok(splits > 20, `${splits} plans were split`);
  });

  it('change no result, whatever the sequences read and write', async () => {
    const plain = await createOnnxBackend(model, { ...RANDOM_POOL, bits: 32, threads: 1 });
    const bounded = await createOnnxBackend(model, { ...RANDOM_POOL, bits: 32, threads: 1, stepBytes: 1 });
    try {
      await fc.assert(
        fc.asyncProperty(batches, async (cases) => {
          const steps = randomSteps(model.config, cases);
          const expected = await take(plain, steps);
          const found = await take(bounded, steps);
          for (const [i, output] of found.entries()) {
            const wanted = expected[i];
            assert.ok(wanted);
            assert.ok(relativeError(values(output), values(wanted)) < 1e-4);
          }
        }),
        { seed: 2, numRuns: 15 },
      );
    } finally {
      await plain.dispose();
      await bounded.dispose();
    }
  });

  it('follow the memory that is free, unless a setting gives the bytes', async () => {
    const pool = { pageSize: 16, pageCount: 2, bits: 32, threads: 1 } as const;
    const boundOf = async (options: { readonly stepBytes?: number }) => {
      const backend = await createOnnxBackend(model, { ...pool, freeBytes: () => 8 * 2 ** 30, ...options });
      await backend.dispose();
      return backend.steps.maxBytes;
    };
    assert.deepEqual([await boundOf({}), await boundOf({ stepBytes: 12_345 })], [2 * 2 ** 30, 12_345]);
  });
});

const topRows = ({ output }: SequenceInput): number => (output.kind === 'top' ? output.rows : 0);
