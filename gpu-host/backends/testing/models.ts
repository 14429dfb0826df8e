import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { expectedTensors, type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { writeSafetensors } from '#gpu-host/models/safetensors.ts';

/** Tiny models of several families and shapes, named by the feature that they exercise. */
export const VARIANTS: Readonly<Record<string, Partial<ModelConfig>>> = {
  'grouped queries': { heads: 4, kvHeads: 2, headDim: 8 },
  'one key head per query head, tied': { heads: 4, kvHeads: 4, headDim: 8, tiedEmbeddings: true },
  'one key head, three layers': { heads: 6, kvHeads: 1, headDim: 16, hiddenSize: 48, layers: 3 },
  'Llama 3 rotation': {
    heads: 4,
    kvHeads: 2,
    headDim: 16,
    hiddenSize: 64,
    ropeTheta: 500_000,
    ropeScaling: {
      type: 'llama3',
      factor: 8,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalContextLength: 64,
    },
  },
  'Qwen 2': { family: 'qwen2', heads: 4, kvHeads: 2, headDim: 8, tiedEmbeddings: true },
  'Qwen 3': { family: 'qwen3', heads: 4, kvHeads: 2, headDim: 16, rmsNormEpsilon: 1e-6 },
};

/** Writes a copy of a model with 16-bit weights, which most models on the hub have. */
export async function narrowModel(model: LoadedModel, directory: string, dtype: 'BF16' | 'F16'): Promise<LoadedModel> {
  const { config } = model;
  // As files have it: norms may be stored less their offset.
  const read = (name: string) => {
    const values = model.tensors.read(name);
    return name.endsWith('norm.weight') ? values.map((value) => value - config.normOffset) : values;
  };
  const tensors = expectedTensors(config).map(([name, shape]) => ({
    name,
    shape,
    dtype,
    data: () => [narrowed(read(name), dtype)],
  }));
  await mkdir(directory, { recursive: true });
  await copyFile(join(model.directory, 'config.json'), join(directory, 'config.json'));
  await writeSafetensors(join(directory, 'model.safetensors'), tensors);
  return loadModel(directory);
}

function narrowed(values: Float32Array, dtype: 'BF16' | 'F16'): Uint8Array {
  if (dtype === 'F16') return new Uint8Array(Float16Array.from(values).buffer);
  // A bfloat16 is the upper half of a float32, here rounded to the nearest, ties to even.
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return new Uint8Array(Uint16Array.from(words, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16).buffer);
}
