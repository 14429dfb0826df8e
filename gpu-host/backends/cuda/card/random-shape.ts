import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { configToJson, type ModelConfig } from '#gpu-host/models/config.ts';
import { expectedTensors } from '#gpu-host/models/load.ts';
import { type TensorSource, writeSafetensors } from '#gpu-host/models/safetensors.ts';
import { gaussian, tinyConfig, writePlainTokenizer } from '#gpu-host/models/testing/random-model.ts';

const LLAMA3 = {
  headDim: 128,
  kvHeads: 8,
  vocabularySize: 128_256,
  contextLength: 131_072,
  ropeTheta: 500_000,
} as const;

/** The shapes of `native/harness/shapes.h`. */
export const SHAPES: Readonly<Record<string, ModelConfig>> = {
  '1B': tinyConfig({
    ...LLAMA3,
    hiddenSize: 2048,
    intermediateSize: 8192,
    layers: 16,
    heads: 32,
    headDim: 64,
    tiedEmbeddings: true,
  }),
  '3B': tinyConfig({
    ...LLAMA3,
    hiddenSize: 3072,
    intermediateSize: 8192,
    layers: 28,
    heads: 24,
    tiedEmbeddings: true,
  }),
  '8B': tinyConfig({ ...LLAMA3, hiddenSize: 4096, intermediateSize: 14_336, layers: 32, heads: 32 }),
  toy: tinyConfig({
    hiddenSize: 128,
    intermediateSize: 256,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    // A larger vocabulary than the harness's, because the decoding inferlet uses such token ids.
    vocabularySize: 20_480,
    contextLength: 4096,
    tiedEmbeddings: true,
  }),
};

const BLOCK_VALUES = 1 << 22;
/** 1 as bf16. */
const ONE = 0x3f80;

/**
 * Writes a model that has the shape of a real one and random bf16 weights. Norms are ones; all other weights repeat one block of normal values,
 * so that the disk limits the speed. The model's output means nothing, but its steps take as long as those of the real model.
 */
export async function writeRandomShape(directory: string, config: ModelConfig): Promise<void> {
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'config.json'), JSON.stringify(configToJson(config), null, 2));
  await writePlainTokenizer(directory, config.vocabularySize);
  const block = randomBlock(BLOCK_VALUES, 1 / Math.sqrt(config.hiddenSize));
  const ones = new Uint8Array(new Uint16Array(config.hiddenSize).fill(ONE).buffer);
  const tensors = expectedTensors(config).map(([name, shape]): TensorSource => {
    const bytes = 2 * shape.reduce((size, dimension) => size * dimension, 1);
    return { name, shape, dtype: 'BF16', data: () => repeated(name.endsWith('norm.weight') ? ones : block, bytes) };
  });
  await writeSafetensors(join(directory, 'model.safetensors'), tensors);
}

function* repeated(block: Uint8Array, bytes: number): Generator<Uint8Array> {
  for (let left = bytes; left > 0; left -= block.length) yield block.subarray(0, left);
}

function randomBlock(count: number, deviation: number): Uint8Array {
  const normal = gaussian(17);
  const values = Float32Array.from({ length: count }, () => deviation * normal());
  const words = new Uint32Array(values.buffer);
  return new Uint8Array(Uint16Array.from(words, (word) => word >>> 16).buffer);
}
