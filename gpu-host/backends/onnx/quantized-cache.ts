import { createHash } from 'node:crypto';
import { mkdir, open, realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { isBlocked, type TensorInfo } from '#gpu-host/models/blocks.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { makeFile } from '#gpu-host/models/make-file.ts';
import type { FileRange } from './graph-builder.ts';
import { quantizeMatrix } from './quantize.ts';
import { BLOCK_SIZE, type LinearLayer, type QuantizedRanges, quantizedLinears, type WeightBits } from './weights.ts';

/** Part of every cache name: raise it when the quantisation or the layout changes. */
const FORMAT = 1;

/** `$XDG_CACHE_HOME/pie/quantized` or `~/.cache/pie/quantized`. */
export function defaultCacheDirectory(): string {
  return join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'pie', 'quantized');
}

/**
 * Places of a model's quantised weights, by layer name. All lie in one file, which this function writes if it is missing. Its name is a hash of
 * the widths and of the weight files' paths, sizes and times. Empty when the graph multiplies the model file's own weights only.
 */
export async function quantizedWeights(
  model: LoadedModel,
  bits: WeightBits,
  headBits: WeightBits,
  cacheDirectory: string,
): Promise<ReadonlyMap<string, QuantizedRanges>> {
  const linears = quantizedLinears(model, bits, headBits);
  if (linears.length === 0) return new Map();
  const directory = resolve(cacheDirectory);
  await mkdir(directory, { recursive: true });
  const file = join(await realpath(directory), `${await cacheKey(model, linears)}.weights`);
  const ranges = layout(linears, file);
  const bytes = [...ranges.values()].reduce((sum, { values, scales }) => sum + values.bytes + scales.bytes, 0);
  // A machine that failed after the rename may have kept only a part of the file.
  const isComplete = () =>
    stat(file).then(
      ({ size }) => size === bytes,
      () => false,
    );
  await makeFile(file, isComplete, (partial) => write(model, linears, partial));
  return ranges;
}

async function cacheKey(model: LoadedModel, linears: readonly LinearLayer[]): Promise<string> {
  const hash = createHash('sha256').update(JSON.stringify([FORMAT, BLOCK_SIZE, linears]));
  const files = new Set(linears.flatMap(({ parts }) => parts.map((part) => fileOf(model.tensors.info(part)))));
  for (const file of [...files].sort()) {
    const { size, mtimeNs } = await stat(file, { bigint: true });
    hash.update(JSON.stringify([await realpath(file), String(size), String(mtimeNs)]));
  }
  return hash.digest('hex').slice(0, 32);
}

function fileOf(info: TensorInfo): string {
  return isBlocked(info) ? info.levels.file : info.file;
}

function layout(linears: readonly LinearLayer[], file: string): Map<string, QuantizedRanges> {
  const ranges = new Map<string, QuantizedRanges>();
  let offset = 0;
  const take = (bytes: number): FileRange => {
    const range = { file, offset, bytes };
    offset += bytes;
    return range;
  };
  for (const { name, rows, columns, bits } of linears) {
    const blocks = Math.ceil(columns / BLOCK_SIZE);
    const values = take((rows * blocks * BLOCK_SIZE * bits) / 8);
    ranges.set(name, { values, scales: take(rows * blocks * 4) });
  }
  return ranges;
}

async function write(model: LoadedModel, linears: readonly LinearLayer[], partial: string): Promise<void> {
  const handle = await open(partial, 'wx');
  try {
    for (const linear of linears) {
      const { values, scales } = quantizeLinear(model, linear);
      await handle.writeFile(values);
      await handle.writeFile(new Uint8Array(scales.buffer, scales.byteOffset, scales.byteLength));
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function quantizeLinear(model: LoadedModel, { parts, rows, columns, bits }: LinearLayer) {
  if (bits === 32) throw new TypeError('32-bit weights are not quantised.');
  const stacked = new Float32Array(rows * columns);
  let offset = 0;
  for (const part of parts) {
    const weight = model.tensors.read(part);
    stacked.set(weight, offset);
    offset += weight.length;
  }
  return quantizeMatrix(stacked, rows, columns, bits, BLOCK_SIZE);
}
