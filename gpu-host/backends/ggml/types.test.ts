import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { importGguf } from '../../models/convert/gguf/convert.ts';
import { ggufFile, modelParts } from '../../models/convert/gguf/testing/write.ts';
import { TYPES } from '../../models/convert/gguf/types.ts';
import { ModelError } from '../../models/errors.ts';
import { type LoadedModel, loadModel } from '../../models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import type { Backend } from '../backend.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { compare } from '../testing/compare.ts';
import { batches, RANDOM_POOL } from '../testing/random-batch.ts';
import { Random, range, rootMeanSquareError, run, sequence } from '../testing/scenario.ts';
import { createGgmlBackend } from './index.ts';
import { Ggml } from './library.ts';
import { CONSTANTS } from './signatures.ts';
import { loadWeights } from './weights.ts';

const ROWS = 8;
const COLUMNS = 512;
/** Rows of whole blocks in every type; the head's rows are a multiple of 4 only, so that ggml does not reorder it on every CPU. */
const SHAPE = {
  layers: 1,
  hiddenSize: 256,
  intermediateSize: 256,
  heads: 8,
  kvHeads: 4,
  headDim: 32,
  vocabularySize: 300,
} as const;
/**
 * Largest root mean square errors against a reference with the same weights. ggml rounds the inputs of products to the type of the weights, or to 8 bits
 * beside weights in blocks.
 */
const ERRORS: Readonly<Record<string, number>> = { F32: 2e-6, F16: 1e-3, BF16: 1e-2 };
const QUANTISED_ERROR = 0.03;
/** Largest error between two orders of blocks: sums that differ in the last bit may round an input to another level of 8 bits (measured: 0.013). */
const ORDER_ERROR = 0.03;
const NONE = new Float32Array(0);
const POOL = { pageSize: 16, pageCount: 8 } as const;

const ggml = await Ggml.open().catch((error: unknown) => {
  if (error instanceof ModelError) return error.message;
  throw error;
});

describe("the decoders of GGUF's types", { skip: typeof ggml === 'string' && ggml }, () => {
  for (const { number, name, values, bytes, decode } of Object.values(TYPES)) {
    if (decode === undefined) continue;
    test(`${name} has the size and the values of ggml's own decoder, bit by bit`, async () => {
      assert.ok(ggml instanceof Ggml);
      assert.equal(ggml.functions.ggml_row_size(number, values), bytes);
      const matrix = new Uint8Array(ROWS * ggml.functions.ggml_row_size(number, COLUMNS));
      ggml.functions.ggml_quantize_chunk(number, randomValues(number), matrix, 0, ROWS, COLUMNS, null);
      const expected = await decodedByGgml(ggml, number, matrix);
      assert.ok(expected.some((value) => value !== 0));
      const actual = new Float32Array(ROWS * COLUMNS);
      decode(new DataView(matrix.buffer), actual);
      assert.deepEqual(actual, expected);
    });
  }
});

describe('a model in the bits of its file', { skip: typeof ggml === 'string' && ggml }, () => {
  let directory: string;
  let original: LoadedModel;
  let tied: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-ggml-types-'));
    original = await randomModel(join(directory, 'original'), SHAPE, 41);
    // Rows of a head that is also the embeddings cannot be in another order, and every CPU's order needs a multiple of 32.
    tied = await randomModel(
      join(directory, 'tied'),
      { ...SHAPE, family: 'qwen3', tiedEmbeddings: true, vocabularySize: 320 },
      44,
    );
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /** Root mean square error against the reference backend, for a prompt and for a single input, which is multiplied in another way than many. */
  const errorOf = async (backend: Backend, model: LoadedModel): Promise<number> => {
    const reference = await createReferenceBackend(model, POOL);
    const prompt = new Random(3).tokens(model.config, 20);
    const slots = range(0, 20);
    const errors: number[] = [];
    for (const input of [
      sequence(model.config, prompt, { writes: slots, output: { kind: 'states', rows: 20 } }),
      sequence(model.config, Uint32Array.of(7), { context: slots }),
    ]) {
      const [actual = NONE] = await run(backend, input);
      const [expected = NONE] = await run(reference, input);
      errors.push(rootMeanSquareError(actual, expected));
    }
    return Math.max(...errors);
  };

  for (const { number, name, bits } of Object.values(TYPES)) {
    for (const repack of [false, true]) {
      test(`${name}${repack ? ', in the order that is fastest' : ', in the pages of its file'}`, async (context) => {
        assert.ok(ggml instanceof Ggml);
        for (const each of [original, tied]) {
          const model = await quantisedModel(ggml, each, number, directory);
          const backend = await createGgmlBackend(model, { ...POOL, bits: 32, repack, threads: 1 });
          try {
            assert.equal(backend.weightBits, bits);
            const error = await errorOf(backend, model);
            context.diagnostic(`${model.config.family}: root mean square error ${error.toExponential(1)}`);
            assert.ok(error <= (ERRORS[name] ?? QUANTISED_ERROR), `${error}`);
          } finally {
            await backend.dispose();
          }
        }
      });
    }
  }
});

test('random batches give the same numbers in the order of the file and in the fastest one', {
  skip: typeof ggml === 'string' && ggml,
}, async (context) => {
  assert.ok(ggml instanceof Ggml);
  const directory = await mkdtemp(join(tmpdir(), 'pie-ggml-orders-'));
  try {
    const original = await randomModel(join(directory, 'original'), { ...SHAPE, vocabularySize: 320 }, 45);
    // A type of each kind: with 32 and with 256 values in a block.
    for (const number of [2, 12]) {
      const model = await quantisedModel(ggml, original, number, directory);
      const [plain, fast] = await Promise.all(
        [false, true].map((repack) => createGgmlBackend(model, { ...RANDOM_POOL, bits: 32, repack, threads: 1 })),
      );
      let worst = 0;
      const property = fc.asyncProperty(batches, async (batch) => {
        const error = await compare(model, plain as Backend, fast as Backend, batch);
        worst = Math.max(worst, error);
        assert.ok(error <= ORDER_ERROR, `relative error ${error}`);
      });
      await fc.assert(property, { seed: 42, numRuns: 20 });
      context.diagnostic(`${TYPES[number]?.name}: largest relative error ${worst.toExponential(1)}`);
      await plain?.dispose();
      await fast?.dispose();
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test('matrices that stay in the pages of the file take no other memory', {
  skip: typeof ggml === 'string' && ggml,
}, async () => {
  assert.ok(ggml instanceof Ggml);
  const directory = await mkdtemp(join(tmpdir(), 'pie-ggml-pages-'));
  try {
    const original = await randomModel(join(directory, 'original'), SHAPE, 43);
    const model = await quantisedModel(ggml, original, 3, directory);
    const options = { bits: 32, headBits: 32, repack: false } as const;
    const weights = await loadWeights(ggml, ggml.device('cpu'), model, options);
    weights.dispose();
    const { hiddenSize, heads, kvHeads, headDim } = SHAPE;
    const reordered = ggml.functions.ggml_row_size(3, hiddenSize) * (heads + kvHeads) * headDim;
    const floats = 4 * (3 * hiddenSize + headDim);
    assert.ok(weights.bytes >= reordered + floats && weights.bytes < reordered + floats + 1024, String(weights.bytes));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test('matrices of more bits than the configuration allows are quantised, others stay', {
  skip: typeof ggml === 'string' && ggml,
}, async () => {
  assert.ok(ggml instanceof Ggml);
  const directory = await mkdtemp(join(tmpdir(), 'pie-ggml-bits-'));
  try {
    const original = await randomModel(join(directory, 'original'), SHAPE, 42);
    const found: string[] = [];
    for (const [number, bits] of [
      [8, 4],
      [14, 4],
      [14, 8],
      [12, 4],
      [12, 8],
      [30, 8],
    ] as const) {
      const model = await quantisedModel(ggml, original, number, directory);
      const backend = await createGgmlBackend(model, { ...POOL, bits, threads: 1 });
      found.push(`${TYPES[number]?.name} ${bits}: ${backend.precision}`);
      await backend.dispose();
    }
    assert.deepEqual(found, [
      'Q8_0 4: q4_0',
      'Q6_K 4: q4_0',
      'Q6_K 8: q6_k',
      'Q4_K 4: q4_k',
      'Q4_K 8: q4_k',
      'BF16 8: q8_0',
    ]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

/** A model of a GGUF file with all matrices in one type. */
async function quantisedModel(ggml: Ggml, model: LoadedModel, type: number, directory: string): Promise<LoadedModel> {
  const parts = modelParts(model, 'F32');
  const tensors = parts.tensors.map((tensor) => {
    const [rows = 0, columns] = tensor.shape;
    if (columns === undefined) return tensor;
    const values = new Float32Array(new Uint8Array(tensor.bytes).buffer);
    const bytes = Buffer.alloc(rows * ggml.functions.ggml_row_size(type, columns));
    ggml.functions.ggml_quantize_chunk(type, values, bytes, 0, rows, columns, null);
    return { ...tensor, type, bytes };
  });
  const folder = await mkdtemp(join(directory, 'model-'));
  await writeFile(join(folder, 'written.gguf'), ggufFile({ ...parts, tensors }));
  await importGguf(join(folder, 'written.gguf'), folder);
  return loadModel(folder);
}

/** Sums of four uniform numbers, with another spread in each row; the first values of a row are zero, as a whole block can be. */
function randomValues(seed: number): Float32Array {
  let state = seed + 1;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  return Float32Array.from({ length: ROWS * COLUMNS }, (_, i) => {
    const spread = 10 ** (Math.floor(i / COLUMNS) - 4);
    return i % COLUMNS < 32 ? 0 : spread * (uniform() + uniform() + uniform() + uniform());
  });
}

/** The rows of a matrix as ggml looks them up. */
async function decodedByGgml(ggml: Ggml, type: number, matrix: Uint8Array): Promise<Float32Array> {
  const { functions: f } = ggml;
  const context = ggml.context(8, f.ggml_graph_overhead_custom(8, false));
  const device = ggml.device('cpu');
  const backend = f.ggml_backend_dev_init(device.handle, null);
  const source = f.ggml_new_tensor_2d(context, type, COLUMNS, ROWS);
  const indices = f.ggml_new_tensor_1d(context, CONSTANTS.GGML_TYPE_I32, ROWS);
  const rows = f.ggml_get_rows(context, source, indices);
  const graph = f.ggml_new_graph_custom(context, 8, false);
  f.ggml_build_forward_expand(graph, rows);
  const buffer = f.ggml_backend_alloc_ctx_tensors_from_buft(context, f.ggml_backend_dev_buffer_type(device.handle));
  try {
    f.ggml_backend_tensor_set(source, matrix, 0, matrix.byteLength);
    const order = Int32Array.from({ length: ROWS }, (_, i) => i);
    f.ggml_backend_tensor_set(indices, order, 0, order.byteLength);
    await ggml.compute(backend, graph);
    const values = new Float32Array(ROWS * COLUMNS);
    f.ggml_backend_tensor_get(rows, values, 0, values.byteLength);
    return values;
  } finally {
    f.ggml_backend_buffer_free(buffer);
    f.ggml_backend_free(backend);
    f.ggml_free(context);
  }
}
