import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { type RandomVisionOptions, randomVisionModel } from '../models/testing/random-vision-model.ts';
import type { Backend } from './backend.ts';
import { InvalidInput } from './check.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';

const SIDE = 12;
const SIGLIP = { image_processor_type: 'SiglipImageProcessor', size: { height: SIDE, width: SIDE } };

/** Models that cover every variation of a tower, and all names that versions of transformers give the weights. */
const MODELS: Readonly<Record<'clip' | 'full' | 'siglip', RandomVisionOptions>> = {
  clip: {},
  full: {
    tower: { hidden_act: 'gelu', layer_norm_eps: 1e-4 },
    llava: { vision_feature_select_strategy: 'full', vision_feature_layer: -1 },
    names: 'nested',
  },
  siglip: {
    tower: { model_type: 'siglip_vision_model', vision_use_head: false, patch_size: 5 },
    llava: { vision_feature_select_strategy: 'full', vision_feature_layer: 2, multimodal_projector_bias: false },
    names: 'flat',
    preprocessor: SIGLIP,
  },
};

/** Results of transformers 5.18 for the same weights in float64 (`fixtures/vision-golden.py`), to six digits after the point. */
const golden = JSON.parse(readFileSync(new URL('./fixtures/vision-golden.json', import.meta.url), 'utf8')) as Record<
  string,
  number[][]
>;
const GOLDEN_ERROR = 2e-6;
/** Largest allowed error of the ONNX backend. The values reach 25, and the backend computes in float32. */
const ONNX_ERROR = 5e-5;

/** The same pixels as in `fixtures/vision-golden.py`. */
const image = (k: number) => Uint8Array.from({ length: 3 * SIDE * SIDE }, (_, i) => (i * 37 * k) % 256);

function largestError(found: readonly Float32Array[], expected: readonly ArrayLike<number>[]): number {
  assert.deepEqual(
    found.map(({ length }) => length),
    expected.map(({ length }) => length),
  );
  return Math.max(...found.flatMap((row, i) => Array.from(row, (value, k) => Math.abs(value - expected[i]![k]!))));
}

describe('vision towers', () => {
  let directory: string;
  const opened: Backend[] = [];
  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'pie-vision-'));
  });
  after(async () => {
    for (const backend of opened) await backend.dispose();
    rmSync(directory, { recursive: true, force: true });
  });

  const pool = { pageSize: 8, pageCount: 2 };
  const open = async (model: LoadedModel): Promise<[Backend, Backend]> => {
    const pair: [Backend, Backend] = [
      await createReferenceBackend(model, pool),
      await createOnnxBackend(model, { ...pool, bits: 32, threads: 1 }),
    ];
    opened.push(...pair);
    return pair;
  };

  for (const [name, options] of Object.entries(MODELS)) {
    it(`${name}: the reference agrees with transformers, and ONNX with the reference, in one batch and image by image`, async () => {
      const model = await randomVisionModel(join(directory, name), options, 5);
      const [reference, onnx] = await open(model);
      const images = [image(1), image(2)];
      const expected = await reference.images!.encode(images);
      const error = largestError(expected, golden[name]!);
      assert.ok(error < GOLDEN_ERROR, `reference: ${error}`);
      const together = await onnx.images!.encode(images);
      assert.ok(largestError(together, expected) < ONNX_ERROR, `onnx: ${largestError(together, expected)}`);
      for (const [i, each] of images.entries()) {
        const alone = await onnx.images!.encode([each]);
        assert.ok(largestError(alone, [expected[i]!]) < ONNX_ERROR);
      }
    });
  }

  it('the config tells the number of embeds of an image', async () => {
    const sizes: number[] = [];
    for (const [name, options] of Object.entries(MODELS)) {
      const { vision, config } = await randomVisionModel(join(directory, `${name}-rows`), options, 6);
      assert.equal(vision?.embedSize, config.hiddenSize);
      sizes.push(vision!.embeds);
    }
    // 3 × 3 patches; the same after a class token; 2 × 2 larger patches.
    assert.deepEqual(sizes, [9, 10, 4]);
  });

  it('refuses images of another size, and encodes an empty batch', async () => {
    const model = await randomVisionModel(join(directory, 'sizes'), {}, 7);
    for (const backend of await open(model)) {
      await assert.rejects(backend.images!.encode([image(1), new Uint8Array(5)]), InvalidInput);
      assert.deepEqual(await backend.images!.encode([]), []);
    }
  });
});
