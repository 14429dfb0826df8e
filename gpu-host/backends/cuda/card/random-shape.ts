import { closeSync, openSync, writeSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { configToJson, type ModelConfig } from '#gpu-host/models/config.ts';
import { expectedTensors } from '#gpu-host/models/load.ts';
import { gaussian, tinyConfig, writePlainTokenizer } from '#gpu-host/models/random-model.ts';

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
    ...{ hiddenSize: 2048, intermediateSize: 8192, layers: 16, heads: 32, headDim: 64, tiedEmbeddings: true },
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
    ...{ hiddenSize: 128, intermediateSize: 256, layers: 2, heads: 4, kvHeads: 2, headDim: 64 },
    // A larger vocabulary than the harness's, because the decoding inferlet uses such token ids.
    ...{ vocabularySize: 20_480, contextLength: 4096, tiedEmbeddings: true },
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
  const tensors = expectedTensors(config);
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const [name, shape] of tensors) {
    const end = offset + 2 * sizeOf(shape);
    header[name] = { dtype: 'BF16', shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil((json.length + 8) / 64) * 64 - 8, ' ');
  json.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const block = randomBlock(BLOCK_VALUES, 1 / Math.sqrt(config.hiddenSize));
  const ones = Buffer.from(new Uint16Array(config.hiddenSize).fill(ONE).buffer);
  const fd = openSync(join(directory, 'model.safetensors'), 'w');
  try {
    write(fd, length);
    write(fd, padded);
    for (const [name, shape] of tensors) {
      const source = name.endsWith('norm.weight') ? ones : block;
      for (let left = 2 * sizeOf(shape); left > 0; left -= Math.min(left, source.length))
        write(fd, source.subarray(0, Math.min(left, source.length)));
    }
  } finally {
    closeSync(fd);
  }
}

function randomBlock(count: number, deviation: number): Buffer {
  const normal = gaussian(17);
  const values = Float32Array.from({ length: count }, () => deviation * normal());
  const words = new Uint32Array(values.buffer);
  return Buffer.from(Uint16Array.from(words, (word) => word >>> 16).buffer);
}

function write(fd: number, bytes: Buffer): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done);
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((size, dimension) => size * dimension, 1);
}
