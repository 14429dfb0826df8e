import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { blockedModel, packedModel } from '#gpu-host/models/testing/blocked-model.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { dequantizedModel } from '../testing/dequantize.ts';
import { Random, relativeError, rootMeanSquareError, run, sequence } from '../testing/scenario.ts';
import { createOnnxBackend } from './index.ts';
import { BLOCK_SIZE, type WeightBits } from './weights.ts';

const POOL = { pageSize: 16, pageCount: 8 };
const SHAPE = { hiddenSize: 64, intermediateSize: 96, headDim: 16, vocabularySize: 96 };
const FILE_BLOCK = 32;
/** Bound of the median error, as in `../parity.test.ts`: in a few scenarios, the two sides round an input to different levels. */
const TOLERANCE = 1e-4;
const SCENARIOS = 5;

describe('matrices that the model file keeps in blocks', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-file-blocks-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const make = (config: Partial<ModelConfig> = {}) => randomModel(join(directory, 'model'), { ...SHAPE, ...config }, 5);
  /** Compares states and log-probabilities with the reference backend. Returns the median error of some random prompts, and the backend's widths. */
  const errorOf = async (
    model: LoadedModel,
    bits: WeightBits,
    oracle: { model: LoadedModel; roundedBlock?: number },
    errorBetween = relativeError,
  ) => {
    const cacheDirectory = join(directory, 'cache');
    const onnx = await createOnnxBackend(model, { ...POOL, bits, threads: 1, cacheDirectory });
    const { roundedBlock } = oracle;
    const reference = await createReferenceBackend(oracle.model, { ...POOL, ...(roundedBlock && { roundedBlock }) });
    try {
      const errors: number[] = [];
      for (let seed = 0; seed < SCENARIOS; seed++) {
        const prompt = sequence(model.config, new Random(seed).tokens(model.config, 12));
        const states = { ...prompt, output: { kind: 'states', rows: 12 } as const };
        const found = await run(onnx, prompt, states);
        const expected = await run(reference, prompt, states);
        errors.push(Math.max(...found.map((each, i) => errorBetween(each, expected[i]!))));
      }
      return {
        error: errors.sort((a, b) => a - b)[SCENARIOS >> 1]!,
        precision: onnx.precision,
        weightBits: onnx.weightBits,
      };
    } finally {
      await onnx.dispose();
    }
  };

  for (const [encoding, precision, config] of [
    ['Q8_0', 'int8', {}],
    ['Q4_0', 'int4', { family: 'qwen2', tiedEmbeddings: true }],
  ] as const) {
    test(`${encoding}: embeddings, layers and head multiply exactly the values of the file`, async (context) => {
      const model = await packedModel(await make(config), encoding, directory);
      const found = await errorOf(model, 32, { model, roundedBlock: FILE_BLOCK });
      context.diagnostic(`relative error ${found.error.toExponential(1)}`);
      assert.ok(found.error < TOLERANCE, `${found.error}`);
      assert.deepEqual([found.precision, `int${found.weightBits}`], [precision, precision]);
      // An oracle that rounds its inputs in blocks of another size must not agree.
      assert.ok((await errorOf(model, 32, { model, roundedBlock: BLOCK_SIZE })).error > TOLERANCE);
      assert.deepEqual(await readdir(join(directory, 'cache')).catch(() => []), []);
    });
  }

  test('projections of one input are multiplied one by one when their blocks differ', async (context) => {
    const encodings = { attn_q: 'Q8_0', attn_k: 'Q4_0', attn_v: 'F32', ffn_up: 'F16', output: 'BF16' } as const;
    const encodingOf = (name: string) => encodings[name.split('.').at(-2) as keyof typeof encodings] ?? 'Q8_0';
    const model = await packedModel(await make(), encodingOf, directory);
    // This oracle does not round inputs to 8 bits, so the error includes the rounding of the backend.
    const found = await errorOf(model, 32, { model }, rootMeanSquareError);
    context.diagnostic(`root mean square error ${found.error.toExponential(1)}`);
    assert.ok(found.error < 0.05, `${found.error}`);
    assert.equal(found.precision, 'float32 and int8');
  });

  test('the weights of a GGUF file are converted once, with a line about it', async () => {
    const model = await packedModel(await make(), 'Q4_0', directory);
    const lines: string[] = [];
    for (let start = 0; start < 2; start++) {
      const report = (line: string) => void lines.push(line);
      await (await createOnnxBackend(model, { ...POOL, bits: 32, threads: 1, report })).dispose();
    }
    const file = join(model.directory, 'converted.safetensors');
    assert.match(
      lines.join('\n'),
      new RegExp(`^converting the weights of .*${file}\nconverted (\\d+) of \\1 tensors$`),
    );
  });

  test('a backend with fewer bits than the file quantises the values anew', async () => {
    const model = await blockedModel(await make(), 'Q8_0', directory);
    const cached = await dequantizedModel(model, 4, 4, join(directory, 'cache'));
    const found = await errorOf(model, 4, { model: cached, roundedBlock: BLOCK_SIZE });
    assert.ok(found.error < TOLERANCE, `${found.error}`);
    assert.equal(found.precision, 'int4');
    assert.equal((await readdir(join(directory, 'cache'))).length, 1);
  });
});
