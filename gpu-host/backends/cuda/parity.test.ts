import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { packedModel } from '#gpu-host/models/testing/blocked-model.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import { randomFamily, TINY_FAMILIES, type TinyFamily } from '../../models/testing/tiny-families.ts';
import { createReferenceBackend, type ReferenceOptions } from '../reference/index.ts';
import { compare } from '../testing/compare.ts';
import { createTestCudaBackend } from '../testing/cuda.ts';
import { HANDLERS, type HandlerName, handlerError, handlerValues } from '../testing/handlers.ts';
import { MASK_KINDS, MASK_POOL } from '../testing/mask-kinds.ts';
import { narrowModel, VARIANTS } from '../testing/models.ts';
import { NARROW_PRECISIONS, narrowWeightsModel } from '../testing/narrow-weights.ts';
import { batches, RANDOM_POOL } from '../testing/random-batch.ts';
import { Random, relativeError, rootMeanSquareError } from '../testing/scenario.ts';

/** Shapes whose heads and widths suit the kernels for real models; the shapes of `VARIANTS` run on the plain kernels. */
const FAST: Readonly<Record<string, Partial<ModelConfig>>> = {
  'heads of 64': { hiddenSize: 128, intermediateSize: 192, heads: 4, kvHeads: 2, headDim: 64, vocabularySize: 128 },
  'heads of 128, biases': {
    family: 'qwen2',
    hiddenSize: 128,
    intermediateSize: 128,
    heads: 4,
    kvHeads: 1,
    headDim: 128,
    vocabularySize: 128,
    layers: 1,
    tiedEmbeddings: true,
  },
  'heads of 128, norms': {
    family: 'qwen3',
    hiddenSize: 64,
    intermediateSize: 128,
    heads: 2,
    kvHeads: 2,
    headDim: 128,
    vocabularySize: 128,
    rmsNormEpsilon: 1e-6,
  },
};
const SHAPES = { ...VARIANTS, ...FAST };
/** The families of which the backend has every trait. */
const FAMILIES = Object.keys(TINY_FAMILIES).filter((name) => !['qwen3_moe', 'gpt-oss'].includes(name));
const HEADS_OF_64 = { hidden_size: 128, intermediate_size: 192, head_dim: 64, vocab_size: 128 };
const DIVISORS_OF_64 = Array.from({ length: 16 }, (_, i) => 1 + 0.4 * i);
/** Families with heads that suit the tensor-core kernels, of the sizes that these kernels need. */
const FAST_FAMILIES: Readonly<Record<string, TinyFamily>> = {
  ...Object.fromEntries(
    FAMILIES.map((name) => [
      name,
      withConfig(name, { ...HEADS_OF_64, query_pre_attn_scalar: 64, attention_multiplier: 0.1 }),
    ]),
  ),
  'phi3, longrope': withConfig('phi3, longrope', {
    ...HEADS_OF_64,
    rope_scaling: { type: 'longrope', short_factor: DIVISORS_OF_64, long_factor: DIVISORS_OF_64 },
  }),
  'glm4, heads of 128': withConfig('glm4', { ...HEADS_OF_64, head_dim: 128, num_key_value_heads: 1 }),
};
/** True to run all cases. */
const ALL = process.env.PIE_TEST_ALL === '1';
/** Shapes tested with narrow weights: a tied head and the fast kernels; in a full run also stacked products and biases. */
const NARROW = [
  'one key head per query head, tied',
  'heads of 64',
  ...(ALL ? ['grouped queries', 'heads of 128, biases'] : []),
];

/** Tolerance of float32, the same as in `../parity.test.ts`. */
const TOLERANCE = 1e-4;
/**
 * Largest error of the kernels in bf16, as a multiple of the cost of bf16. This cost is the error of a second reference, which rounds the inputs and
 * outputs of products. The kernels round about as many numbers and only add them up in another order, so their error is less than twice the cost.
 */
const TIMES_BF16_COST = 1.5;
/** Bounds of RMS errors. `together`: over all scenarios, against the rounding reference. `alone`: of one output, against the exact one. */
const BF16 = { together: 1e-2, alone: 8e-2 } as const;
/**
 * The bound `together` for keys and values in 8 bits, against a reference that rounds them too. It is larger, because a difference in the last bit of
 * bf16 may decide between two adjacent codes, which differ by up to 1/8 of the value.
 */
const FP8_TOGETHER = 2.5e-2;
/** Configurations that compute in bf16: the weights' precision, and that of keys and values where it differs. */
const WAYS: readonly { precision: 'bf16' | (typeof NARROW_PRECISIONS)[number]; kv?: 'fp8' }[] = [{ precision: 'bf16' }];
const NARROW_WAYS: typeof WAYS = [
  ...WAYS,
  ...NARROW_PRECISIONS.map((precision) => ({ precision })),
  { precision: 'bf16', kv: 'fp8' },
];
/** Shapes tested over every kind of mask: all kernels and families; a full run tests all shapes. */
const MASKED = ALL
  ? Object.keys(SHAPES)
  : ['grouped queries', 'one key head per query head, tied', ...Object.keys(FAST)];
/** Kinds of masks with few and with many inputs: the number of inputs decides which kernels multiply matrices. */
const SOME_MASKS = ['causal', 'page omitted', 'read after write in one batch'];
/**
 * The kinds of masks over which a precision is tested: all kinds where the precision changes what attention reads.
 * Narrow weights reach attention only through the numbers of bf16 that they yield, so some kinds suffice, except in a full run.
 */
const masksOf = (precision: string): [name: string, kinds: (typeof MASK_KINDS)[string][]] => {
  if (ALL || precision === 'bf16') return ['every kind of mask', Object.values(MASK_KINDS)];
  return ['some kinds of masks', SOME_MASKS.map((kind) => MASK_KINDS[kind]!)];
};
/** Cases of each shape; a full run has many. */
const RUNS = ALL ? 60 : 4;
/** Random batches of each family. */
const FAMILY_RUNS = ALL ? 100 : 6;

function withConfig(name: string, changed: TinyFamily['config']): TinyFamily {
  const family = TINY_FAMILIES[name]!;
  return { ...family, config: { ...family.config, ...changed } };
}

describe('cuda against reference', () => {
  const directories: string[] = [];
  after(async () => {
    for (const directory of directories) await rm(directory, { recursive: true, force: true });
  });
  /** A model whose weights are exact in bf16. */
  const make = async (shape: string, seed: number): Promise<LoadedModel> => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-cuda-parity-'));
    directories.push(directory);
    const wide = await randomModel(join(directory, 'wide'), SHAPES[shape], seed);
    return narrowModel(wide, join(directory, 'narrow'), 'BF16');
  };
  const exact = new Map<string, Promise<readonly Values[]>>();
  /** The reference's numbers for a shape over every kind of mask, with which all precisions of the same weights are compared. */
  const exactOf = (shape: string, model: LoadedModel): Promise<readonly Values[]> => {
    const known = exact.get(shape) ?? valuesOf(model, {}, Object.values(MASK_KINDS));
    exact.set(shape, known);
    return known;
  };

  test('float32: matrices in blocks of the model file are multiplied as floats', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-cuda-parity-'));
    directories.push(directory);
    const shape = { hiddenSize: 64, intermediateSize: 96, headDim: 16 };
    const model = await packedModel(await randomModel(join(directory, 'wide'), shape, 26), 'Q4_0', directory);
    const cuda = await createTestCudaBackend(model, MASK_POOL);
    try {
      const [scenarioOf] = Object.values(MASK_KINDS);
      const [expected] = await valuesOf(model, {}, [scenarioOf!]);
      const actual = await handlerValues(cuda, scenarioOf!(model.config, new Random(31)), 32);
      for (const handler of HANDLERS) {
        const error = handlerError(handler, actual[handler], expected![handler]);
        assert.ok(error <= TOLERANCE, `${handler}: ${error}`);
      }
    } finally {
      await cuda.dispose();
    }
  });

  for (const shape of MASKED) {
    test(`float32, ${shape}: every handler over every kind of mask`, async (context) => {
      const model = await make(shape, 25);
      const cuda = await createTestCudaBackend(model, MASK_POOL);
      try {
        const expected = await exactOf(shape, model);
        let worst = 0;
        for (const [i, [kind, scenarioOf]] of Object.entries(MASK_KINDS).entries()) {
          const actual = await handlerValues(cuda, scenarioOf(model.config, new Random(31)), 32);
          for (const handler of HANDLERS) {
            const error = handlerError(handler, actual[handler], expected[i]![handler]);
            assert.ok(error <= TOLERANCE, `${handler}, ${kind}: ${error}`);
            worst = Math.max(worst, error);
          }
        }
        context.diagnostic(`largest error ${worst.toExponential(1)}`);
      } finally {
        await cuda.dispose();
      }
    });

    for (const { precision, kv } of NARROW.includes(shape) ? NARROW_WAYS : WAYS) {
      const [masks, kinds] = masksOf(precision);
      test(`${precision}${kv ? `, keys and values ${kv}` : ''}, ${shape}: every handler over ${masks}`, async (context) => {
        const model = await make(shape, 25);
        const cuda = await createTestCudaBackend(model, { ...MASK_POOL, precision, ...(kv && { kv }) });
        const referenceModel = precision === 'bf16' ? model : narrowWeightsModel(model, precision);
        const errors = new Errors();
        const costs = new Errors();
        const errorsToRounded = new Errors();
        try {
          const expected = await (referenceModel === model
            ? exactOf(shape, model)
            : valuesOf(referenceModel, {}, kinds));
          const rounded = await valuesOf(referenceModel, { roundedTo: 'bf16', ...(kv && { roundedKv: kv }) }, kinds);
          for (const [i, scenarioOf] of kinds.entries()) {
            const actual = await handlerValues(cuda, scenarioOf(model.config, new Random(31)), 32);
            errors.add(actual, expected[i]!);
            costs.add(rounded[i]!, expected[i]!);
            errorsToRounded.add(actual, rounded[i]!);
          }
        } finally {
          await cuda.dispose();
        }
        const errorTexts: string[] = [];
        for (const handler of HANDLERS) {
          const [error, cost] = [errors.of(handler), costs.of(handler)];
          errorTexts.push(
            `${handler} ${error.toExponential(1)} (${(error / cost).toFixed(2)}), ${errorsToRounded.of(handler).toExponential(1)}`,
          );
          assert.ok(error <= TIMES_BF16_COST * cost, `${handler}: ${error}, while the rounding of bf16 costs ${cost}`);
          // Entropies are near zero where a model is certain, so a relative error means nothing.
          const together = kv ? FP8_TOGETHER : BF16.together;
          if (handler !== 'entropy')
            assert.ok(errorsToRounded.of(handler) <= together, `${handler}: ${errorsToRounded.of(handler)}`);
        }
        context.diagnostic(
          `error (as a multiple of the cost of bf16), error against the rounding reference: ${errorTexts.join('; ')}`,
        );
      });
    }
  }

  for (const shape of Object.keys(SHAPES)) {
    for (const precision of ['float32', 'bf16'] as const) {
      test(`${precision}, ${shape}: random batches, masks, slots, inputs and outputs`, async (context) => {
        const model = await make(shape, 21);
        const cuda = await createTestCudaBackend(model, { ...RANDOM_POOL, precision });
        const reference = await createReferenceBackend(model, RANDOM_POOL);
        const [norm, bound] =
          precision === 'float32' ? ([relativeError, TOLERANCE] as const) : ([finiteError, BF16.alone] as const);
        let worst = 0;
        try {
          const property = fc.asyncProperty(batches, async (batch) => {
            const error = await compare(model, reference, cuda, batch, norm);
            worst = Math.max(worst, error);
            assert.ok(error <= bound, `relative error ${error}`);
          });
          await fc.assert(property, { seed: 42, numRuns: RUNS });
        } finally {
          await cuda.dispose();
        }
        context.diagnostic(`largest relative error ${worst.toExponential(1)}`);
      });
    }
  }
});

describe('cuda against reference, families', () => {
  const directories: string[] = [];
  after(async () => {
    for (const directory of directories) await rm(directory, { recursive: true, force: true });
  });
  /** A model of a family, in the layout of its checkpoints. @param isNarrow true for weights that are exact in bf16 */
  const make = async (family: TinyFamily, isNarrow: boolean): Promise<LoadedModel> => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-cuda-families-'));
    directories.push(directory);
    const wide = await randomFamily(join(directory, 'wide'), family, 21);
    return isNarrow ? narrowModel(wide, join(directory, 'narrow'), 'BF16') : wide;
  };
  /** The largest error over random batches. */
  const worstOf = async (
    model: LoadedModel,
    options: { precision: 'float32' | 'bf16' | 'int8'; kv?: 'fp8' },
    norm: typeof relativeError,
    bound: number,
  ): Promise<number> => {
    const cuda = await createTestCudaBackend(model, { ...RANDOM_POOL, ...options });
    const oracle = options.precision === 'int8' ? narrowWeightsModel(model, 'int8') : model;
    const reference = await createReferenceBackend(oracle, { ...RANDOM_POOL, ...(options.kv && { roundedKv: 'fp8' }) });
    let worst = 0;
    try {
      const property = fc.asyncProperty(batches, async (batch) => {
        const error = await compare(model, reference, cuda, batch, norm);
        worst = Math.max(worst, error);
        assert.ok(error <= bound, `relative error ${error}`);
      });
      await fc.assert(property, { seed: 43, numRuns: FAMILY_RUNS });
    } finally {
      await cuda.dispose();
    }
    return worst;
  };

  for (const name of FAMILIES) {
    test(`float32, ${name}: random batches, masks, slots, inputs and outputs`, async (context) => {
      const model = await make(TINY_FAMILIES[name]!, false);
      const worst = await worstOf(model, { precision: 'float32' }, relativeError, TOLERANCE);
      context.diagnostic(`largest relative error ${worst.toExponential(1)}`);
    });
  }

  for (const [name, family] of Object.entries(FAST_FAMILIES)) {
    test(`bf16, ${name}, fast kernels: random batches, masks, slots, inputs and outputs`, async (context) => {
      const model = await make(family, true);
      const worst = await worstOf(model, { precision: 'bf16' }, finiteError, BF16.alone);
      context.diagnostic(`largest error ${worst.toExponential(1)}`);
    });
  }

  test('bf16, gemma3, keys and values in fp8, fast kernels: random batches', async (context) => {
    const model = await make(FAST_FAMILIES.gemma3!, true);
    const worst = await worstOf(model, { precision: 'bf16', kv: 'fp8' }, finiteError, 2 * BF16.alone);
    context.diagnostic(`largest error ${worst.toExponential(1)}`);
  });

  test('int8, glm4, fast kernels: random batches', async (context) => {
    const model = await make(FAST_FAMILIES.glm4!, true);
    const worst = await worstOf(model, { precision: 'int8' }, finiteError, BF16.alone);
    context.diagnostic(`largest error ${worst.toExponential(1)}`);
  });

  for (const name of ['qwen3_moe', 'gpt-oss']) {
    test(`${name}: is refused, with the traits that are missing`, async () => {
      const model = await make(TINY_FAMILIES[name]!, false);
      await assert.rejects(
        createTestCudaBackend(model, RANDOM_POOL),
        /"cuda" does not compute this model's (attention sinks, )?experts/,
      );
    });
  }
});

type Values = Record<HandlerName, Float32Array>;

/** Runs a reference backend over `kinds` of masks, and returns its numbers in that order. */
async function valuesOf(
  model: LoadedModel,
  rounding: Pick<ReferenceOptions, 'roundedTo' | 'roundedKv'>,
  kinds: readonly (typeof MASK_KINDS)[string][],
): Promise<Values[]> {
  const backend = await createReferenceBackend(model, { ...MASK_POOL, ...rounding });
  const values: Values[] = [];
  for (const scenarioOf of kinds)
    values.push(await handlerValues(backend, scenarioOf(model.config, new Random(31)), 32));
  return values;
}

/** Root mean square errors of each handler's numbers, over all added results. */
class Errors {
  readonly #sums = new Map<HandlerName, { difference: number; magnitude: number }>();

  /** @throws AssertionError when the two sides forbid different tokens (-Infinity) */
  add(actual: Values, expected: Values): void {
    for (const handler of HANDLERS) {
      const sums = this.#sums.get(handler) ?? { difference: 0, magnitude: 0 };
      this.#sums.set(handler, sums);
      expected[handler].forEach((value, i) => {
        const found = actual[handler][i] as number;
        if (!Number.isFinite(value)) assert.equal(found, value);
        else {
          sums.difference += (found - value) ** 2;
          sums.magnitude += value ** 2;
        }
      });
    }
  }

  of(handler: HandlerName): number {
    const { difference, magnitude } = this.#sums.get(handler) ?? { difference: 0, magnitude: 0 };
    return Math.sqrt(difference / magnitude);
  }
}

/** The root mean square error of one output; infinite unless both sides have the same non-finite numbers (tokens that a mask forbids). */
function finiteError(actual: Float32Array, expected: Float32Array): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY;
  const strange = expected.some(
    (value, i) => !(Number.isFinite(value) && Number.isFinite(actual[i])) && value !== actual[i],
  );
  if (strange) return Number.POSITIVE_INFINITY;
  const finite = (values: Float32Array) => values.filter((value) => Number.isFinite(value));
  if (expected.length === 0 || finite(expected).every((value) => value === 0)) {
    return finite(actual).every((value) => value === 0) ? 0 : Number.POSITIVE_INFINITY;
  }
  return rootMeanSquareError(finite(actual), finite(expected));
}
