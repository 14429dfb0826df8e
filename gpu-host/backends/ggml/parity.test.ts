import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { blockedModel } from '#gpu-host/models/testing/blocked-model.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import { randomFamily, TINY_FAMILIES } from '../../models/testing/tiny-families.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { compare } from '../testing/compare.ts';
import { HANDLERS, handlerError, handlerValues } from '../testing/handlers.ts';
import { MASK_KINDS, MASK_POOL } from '../testing/mask-kinds.ts';
import { VARIANTS } from '../testing/models.ts';
import { batches, RANDOM_POOL } from '../testing/random-batch.ts';
import { Random, rootMeanSquareError, run, sequence } from '../testing/scenario.ts';
import { createGgmlBackend } from './index.ts';

/** Tolerance of float32, the same as in `../parity.test.ts`. */
const TOLERANCE = 1e-4;
/** ggml looks up GELU in a table of 16-bit floats. */
const GELU_TOLERANCE = 5e-3;
const ALL = process.env.PIE_TEST_ALL === '1';
/** Random batches of each shape; a full run has many. */
const RUNS = ALL ? 200 : 10;
/** Shapes tested over every kind of mask; a full run tests all shapes. */
const MASKED = ALL ? Object.keys(VARIANTS) : ['grouped queries', 'Llama 3 rotation', 'Qwen 2', 'Qwen 3'];
/**
 * Largest root mean square error of states with blocks of 8 and 4 bits, against a reference with the same weights that does not round the inputs of
 * products: ggml rounds them to 8 bits in blocks of 32.
 */
const ROUNDING = 0.05;

describe('ggml against reference', () => {
  const directories: string[] = [];
  after(async () => {
    for (const directory of directories) await rm(directory, { recursive: true, force: true });
  });
  const make = async (variant: string, seed: number): Promise<[LoadedModel, string]> => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-ggml-parity-'));
    directories.push(directory);
    return [await randomModel(join(directory, 'model'), VARIANTS[variant], seed), directory];
  };

  for (const variant of MASKED) {
    test(`${variant}: every handler over every kind of mask`, async (context) => {
      const [model] = await make(variant, 25);
      const ggml = await createGgmlBackend(model, { ...MASK_POOL, bits: 32, threads: 2 });
      const reference = await createReferenceBackend(model, MASK_POOL);
      let worst = 0;
      try {
        for (const [kind, scenarioOf] of Object.entries(MASK_KINDS)) {
          const scenario = scenarioOf(model.config, new Random(31));
          const actual = await handlerValues(ggml, scenario, 32);
          const expected = await handlerValues(reference, scenario, 32);
          for (const handler of HANDLERS) {
            const error = handlerError(handler, actual[handler], expected[handler]);
            assert.ok(error <= TOLERANCE, `${handler}, ${kind}: ${error}`);
            worst = Math.max(worst, error);
          }
        }
      } finally {
        await ggml.dispose();
      }
      context.diagnostic(`largest error ${worst.toExponential(1)}`);
    });
  }

  for (const variant of Object.keys(VARIANTS)) {
    test(`${variant}: random batches, masks, slots, inputs and outputs`, async (context) => {
      const [model] = await make(variant, 21);
      const ggml = await createGgmlBackend(model, { ...RANDOM_POOL, bits: 32, threads: 2 });
      const reference = await createReferenceBackend(model, RANDOM_POOL);
      let worst = 0;
      try {
        const property = fc.asyncProperty(batches, async (batch) => {
          const error = await compare(model, reference, ggml, batch);
          worst = Math.max(worst, error);
          assert.ok(error <= TOLERANCE, `relative error ${error}`);
        });
        await fc.assert(property, { seed: 42, numRuns: RUNS });
      } finally {
        await ggml.dispose();
      }
      context.diagnostic(`largest relative error ${worst.toExponential(1)}`);
    });
  }

  for (const [name, family] of Object.entries(TINY_FAMILIES)) {
    test(`${name}: random batches, masks, slots, inputs and outputs`, async (context) => {
      const directory = await mkdtemp(join(tmpdir(), 'pie-ggml-parity-'));
      directories.push(directory);
      const model = await randomFamily(join(directory, 'model'), family, 21);
      const ggml = await createGgmlBackend(model, { ...RANDOM_POOL, bits: 32, threads: 2 });
      const reference = await createReferenceBackend(model, RANDOM_POOL);
      const tolerance = model.config.activation === 'gelu' ? GELU_TOLERANCE : TOLERANCE;
      let worst = 0;
      try {
        const property = fc.asyncProperty(batches, async (batch) => {
          const error = await compare(model, reference, ggml, batch);
          worst = Math.max(worst, error);
          assert.ok(error <= tolerance, `relative error ${error}`);
        });
        await fc.assert(property, { seed: 43, numRuns: RUNS });
      } finally {
        await ggml.dispose();
      }
      context.diagnostic(`largest relative error ${worst.toExponential(1)}`);
    });
  }

  for (const encoding of ['Q8_0', 'Q4_0'] as const) {
    test(`blocks of a file in ${encoding} are multiplied as they are`, async (context) => {
      const directory = await mkdtemp(join(tmpdir(), 'pie-ggml-parity-'));
      directories.push(directory);
      const shape = { hiddenSize: 64, intermediateSize: 96, headDim: 16 };
      const model = await blockedModel(await randomModel(join(directory, 'wide'), shape, 26), encoding, directory);
      const ggml = await createGgmlBackend(model, { ...MASK_POOL, bits: 32, threads: 2 });
      try {
        assert.equal(ggml.weightBits, encoding === 'Q8_0' ? 8 : 4);
        const reference = await createReferenceBackend(model, MASK_POOL);
        const prompt = new Random(3).tokens(model.config, 20);
        const input = sequence(model.config, prompt, { output: { kind: 'states', rows: 20 } });
        const [actual] = await run(ggml, input);
        const [expected] = await run(reference, input);
        const error = rootMeanSquareError(actual ?? new Float32Array(0), expected ?? new Float32Array(0));
        assert.ok(error <= ROUNDING, `${error}`);
        context.diagnostic(`root mean square error ${error.toExponential(1)}`);
      } finally {
        await ggml.dispose();
      }
    });
  }
});
