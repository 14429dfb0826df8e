import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { convertQuantized } from '#gpu-host/models/convert/quantized/convert.ts';
import { gptqScheme } from '#gpu-host/models/convert/quantized/testing/levels.ts';
import { SCHEMES } from '#gpu-host/models/convert/quantized/testing/schemes.ts';
import {
  type Checkpoint,
  floatCheckpoint,
  quantizedCheckpoint,
  type Scheme,
  writeCheckpoint,
} from '#gpu-host/models/convert/quantized/testing/write.ts';
import { type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { isBlocked } from '../models/tensors.ts';
import { randomModel } from '../models/testing/random-model.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { createTestCudaBackend } from './testing/cuda.ts';
import { Random, relativeError, run, sequence } from './testing/scenario.ts';

const POOL = { pageSize: 16, pageCount: 8 };
/** Bounds the relative error between two computations of the same values, as in `parity.test.ts`. */
const TOLERANCE = 1e-4;
const PROMPTS = 5;

/** GPTQ with groups of any size. */
const gptq = (bits: 4 | 8, groupSize: number, symmetric: boolean): Scheme =>
  gptqScheme({ bits, groupSize, symmetric, type: 'F16', format: 'gptq' }, (plain) => ({
    ...SCHEMES['gptq, groups of 32'].quantization(plain),
    bits,
    group_size: groupSize,
  }));

/** A scheme for each representation that a conversion writes. A model's blocks have one size, because the reference rounds inputs in such blocks. */
const CASES: Readonly<Record<string, () => Scheme>> = {
  '8-bit floats': () => SCHEMES['fp8, tiles'],
  'blocks of 32 with 4 bits': () => SCHEMES['compressed-tensors, 4 bits'],
  'blocks of 128 with 4 bits and zero points': () => gptq(4, 128, false),
  'blocks of 64 with 8 bits and zero points': () => gptq(8, 64, false),
  'blocks of 16 with and without zero points in one product': () => {
    let isSymmetric = true;
    return {
      ...gptq(4, 16, false),
      quantize(...matrix) {
        isSymmetric = !isSymmetric;
        return gptq(4, 16, isSymmetric).quantize(...matrix);
      },
    };
  },
  'reordered groups': () => SCHEMES['gptq, reordered'],
};
const GATE = 'model.layers.0.mlp.gate_proj.weight';

describe('log-probabilities of a quantised checkpoint equal those of a float checkpoint with the same values', () => {
  let directory: string;
  let original: LoadedModel;
  let json: object;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-quantized-backends-'));
    const shape = { hiddenSize: 128, intermediateSize: 256, headDim: 16, heads: 8 };
    original = await randomModel(join(directory, 'original'), shape, 7);
    json = JSON.parse(await readFile(join(original.directory, 'config.json'), 'utf8'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const write = async (checkpoint: Pick<Checkpoint, 'config' | 'tensors'>) => {
    const at = await mkdtemp(join(directory, 'model-'));
    await writeCheckpoint(at, checkpoint, original.directory);
    return at;
  };

  for (const [name, scheme] of Object.entries(CASES)) {
    test(name, async (context) => {
      const checkpoint = quantizedCheckpoint(original, json, scheme(), 'quantised');
      const converted = await mkdtemp(join(directory, 'converted-'));
      await convertQuantized(await write(checkpoint), converted);
      const model = await loadModel(converted);
      const floats = await loadModel(await write(floatCheckpoint(checkpoint)));
      const gate = model.tensors.info(GATE);
      // The kernel of the ONNX backend rounds the inputs of its products with blocks to 8 bits; the one for floats does not.
      const rounded = isBlocked(gate) ? { roundedBlock: gate.blockSize } : {};
      const references = {
        onnx: await createReferenceBackend(floats, { ...POOL, ...rounded }),
        cuda: await createReferenceBackend(floats, POOL),
      };
      const backends = {
        onnx: await createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }),
        cuda: await createTestCudaBackend(model, POOL),
      };
      try {
        for (const [backend, subject] of Object.entries(backends)) {
          const reference = references[backend as keyof typeof references];
          const errors: number[] = [];
          for (let seed = 0; seed < PROMPTS; seed++) {
            const prompt = sequence(model.config, new Random(seed).tokens(model.config, 8));
            const [[found], [expected]] = [await run(subject, prompt), await run(reference, prompt)];
            errors.push(relativeError(found!, expected!));
          }
          const error = errors.sort((a, b) => a - b)[PROMPTS >> 1]!;
          context.diagnostic(`${backend}: relative error ${error.toExponential(1)}`);
          assert.ok(error < TOLERANCE, `${backend}: ${error}`);
        }
      } finally {
        for (const backend of Object.values(backends)) await backend.dispose();
      }
    });
  }
});
