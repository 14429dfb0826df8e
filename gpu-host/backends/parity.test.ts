import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '#gpu-host/models/random-model.ts';
import type { Backend, OutputRequest, SequenceInput } from './backend.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { narrowModel, VARIANTS } from './testing/models.ts';
import {
  Random,
  range,
  relativeError,
  rootMeanSquareError,
  run,
  sequence,
  values,
  wholeVocabulary,
} from './testing/scenario.ts';

const POOL = { pageSize: 16, pageCount: 24 };
const TOLERANCE = 1e-4;
/** Stated norm of quantised weights: error in root mean square of the last states of a short prompt of tiny random models. */
const QUANTIZED = { 8: 0.08, 4: 0.6 } as const;

/** One sequence of a random batch; everything that is not a number here follows from the seed. */
interface Case {
  readonly seed: number;
  readonly context: number;
  readonly inputs: number;
  readonly mask: 'causal' | 'random' | 'sparse';
  readonly kind: 'tokens' | 'embeds';
  readonly output: 'none' | 'states' | 'top';
  readonly writes: boolean;
}

const cases: fc.Arbitrary<Case> = fc.record({
  seed: fc.integer(),
  context: fc.oneof(fc.constant(0), fc.nat(40)),
  inputs: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 12 })),
  mask: fc.constantFrom('causal', 'causal', 'random', 'sparse'),
  kind: fc.constantFrom('tokens', 'tokens', 'embeds'),
  output: fc.constantFrom('none', 'states', 'top', 'top'),
  writes: fc.boolean(),
});

const worst = new Map<string, number>();

describe('onnx against reference', () => {
  const directories: string[] = [];
  after(async () => {
    for (const directory of directories) await rm(directory, { recursive: true, force: true });
  });
  const make = async (variant: string, seed: number): Promise<[LoadedModel, string]> => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-parity-'));
    directories.push(directory);
    return [await randomModel(join(directory, 'model'), VARIANTS[variant], seed), directory];
  };

  for (const variant of Object.keys(VARIANTS)) {
    test(`float32, ${variant}: random batches, masks, slots, inputs and outputs`, async (context) => {
      const [model] = await make(variant, 21);
      const reference = await createReferenceBackend(model, POOL);
      const onnx = await createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 });
      try {
        const property = fc.asyncProperty(fc.array(cases, { minLength: 1, maxLength: 4 }), async (batch) => {
          const error = await compare(model, reference, onnx, batch);
          worst.set(variant, Math.max(worst.get(variant) ?? 0, error));
          assert.ok(error <= TOLERANCE, `relative error ${error}`);
        });
        await fc.assert(property, { seed: 42, numRuns: 25 });
      } finally {
        await onnx.dispose();
      }
      context.diagnostic(`largest relative error, ${variant}: ${worst.get(variant)?.toExponential(2)}`);
    });
  }

  for (const dtype of ['BF16', 'F16'] as const) {
    test(`${dtype} weights are the same numbers in float32`, async (context) => {
      const [wide, directory] = await make('one head per query, tied', 24);
      const model = await narrowModel(wide, join(directory, dtype), dtype);
      const reference = await createReferenceBackend(model, POOL);
      for (const headBits of [32, 8] as const) {
        const options = { ...POOL, bits: 32, headBits, threads: 1, cacheDirectory: directory } as const;
        const onnx = await createOnnxBackend(model, options);
        try {
          const prompt = sequence(model.config, new Random(6).tokens(model.config, 20), {
            output: { kind: 'states', rows: 20 },
          });
          const error = relativeError((await run(onnx, prompt))[0], (await run(reference, prompt))[0]);
          context.diagnostic(`relative error, ${dtype}: ${error.toExponential(2)}`);
          assert.ok(error <= TOLERANCE);
        } finally {
          await onnx.dispose();
        }
      }
    });
  }

  for (const bits of [8, 4] as const) {
    test(`${bits}-bit weights stay within their norm`, async (context) => {
      for (const variant of ['grouped queries', 'Qwen 2', 'Qwen 3']) {
        const [model, directory] = await make(variant, 22);
        const reference = await createReferenceBackend(model, POOL);
        const onnx = await createOnnxBackend(model, { ...POOL, bits, threads: 1, cacheDirectory: directory });
        try {
          const errors: number[] = [];
          for (let seed = 0; seed < 8; seed++) {
            const prompt = sequence(model.config, new Random(seed).tokens(model.config, 24), {
              output: { kind: 'states', rows: 24 },
            });
            const [expected] = await run(reference, prompt);
            const [actual] = await run(onnx, prompt);
            errors.push(rootMeanSquareError(actual, expected));
          }
          const error = Math.max(...errors);
          context.diagnostic(`${bits} bits, ${variant}: root mean square error ${error.toFixed(4)}`);
          assert.ok(error <= QUANTIZED[bits], `root mean square error ${error}`);
        } finally {
          await onnx.dispose();
        }
      }
    });
  }

  test('a float32 decoder with an 8-bit head keeps its states', async () => {
    const [model, directory] = await make('one head per query, tied', 23);
    const reference = await createReferenceBackend(model, POOL);
    const options = { ...POOL, bits: 32, headBits: 8, threads: 1, cacheDirectory: directory } as const;
    const onnx = await createOnnxBackend(model, options);
    try {
      const prompt = sequence(model.config, new Random(4).tokens(model.config, 10));
      const states = { ...prompt, output: { kind: 'states', rows: 10 } as const };
      const [expectedTop, expectedStates] = await run(reference, prompt, states);
      const [top, actualStates] = await run(onnx, prompt, states);
      assert.ok(relativeError(actualStates, expectedStates) <= TOLERANCE);
      assert.ok(rootMeanSquareError(top, expectedTop) <= QUANTIZED[8]);
    } finally {
      await onnx.dispose();
    }
  });
});

/** Runs one batch on both: contexts are filled first, then the batch itself, then one step over everything that it wrote. */
async function compare(model: LoadedModel, reference: Backend, onnx: Backend, batch: readonly Case[]): Promise<number> {
  const { config } = model;
  const slots = new Random(batch[0].seed).permutation(POOL.pageSize * POOL.pageCount);
  let taken = 0;
  const take = (count: number) => {
    taken += count;
    return slots.slice(taken - count, taken);
  };
  const fill: SequenceInput[] = [];
  const main: SequenceInput[] = [];
  const after: SequenceInput[] = [];
  for (const each of batch) {
    const random = new Random(each.seed);
    const context = take(each.context);
    if (context.length > 0) {
      const tokens = random.tokens(config, context.length);
      fill.push(sequence(config, tokens, { writes: context, output: { kind: 'none' } }));
    }
    const writes = each.writes ? take(each.inputs) : new Uint32Array(0);
    const inputs =
      each.kind === 'tokens' ? random.tokens(config, each.inputs) : random.floats(each.inputs * config.hiddenSize);
    const positions = Uint32Array.from({ length: each.inputs }, (_, i) => context.length + i + random.below(3));
    main.push(
      sequence(config, inputs, {
        context,
        positions,
        writes,
        mask: maskOf(each, random),
        output: outputOf(each, model),
      }),
    );
    const everything = Uint32Array.of(...context, ...writes);
    after.push(sequence(config, random.tokens(config, 1), { context: everything }));
  }
  let error = 0;
  for (const step of [fill, main, after]) {
    const expected = (await reference.forward(step)).map(values);
    const actual = (await onnx.forward(step)).map(values);
    expected.forEach((each, i) => {
      error = Math.max(error, relativeError(actual[i], each));
    });
  }
  return error;
}

function maskOf({ context, inputs, mask }: Case, random: Random): Uint8Array | 'causal' {
  if (mask === 'causal') return mask;
  const density = mask === 'random' ? 0.7 : 0.05;
  return Uint8Array.from(range(0, inputs * (context + inputs)), () => (random.next() < density ? 1 : 0));
}

function outputOf({ inputs, output, seed }: Case, model: LoadedModel): OutputRequest {
  const rows = 1 + new Random(seed).below(inputs);
  if (output === 'none') return { kind: 'none' };
  return output === 'states' ? { kind: 'states', rows } : wholeVocabulary(model.config, rows);
}
