import { readFile } from 'node:fs/promises';
import type { LoadedModel, TensorStore } from '#gpu-host/models/load.ts';
import {
  BLOCK_SIZE,
  type LinearLayer,
  type QuantizedMatrix,
  quantizedLinears,
  quantizedWeights,
  type WeightBits,
} from '../onnx/weights.ts';

/** The weights that `MatMulNBits` multiplies by: each level, counted from the middle, times its block's scale. */
export function dequantizeMatrix(
  { values, scales }: QuantizedMatrix,
  rows: number,
  columns: number,
  bits: 8 | 4,
  blockSize: number,
): Float32Array {
  const blocks = Math.ceil(columns / blockSize);
  const result = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const index = row * blocks * blockSize + column;
      const nibble = (values[index >> 1] >> ((index & 1) * 4)) & 15;
      const level = bits === 8 ? values[index] - 128 : nibble - 8;
      result[row * columns + column] = level * scales[row * blocks + Math.floor(column / blockSize)];
    }
  }
  return result;
}

/**
 * The same model with the exact weights that the ONNX backend multiplies by at `bits`: read from the backend's cache, which is written when
 * missing, and widened to floats. A tied head becomes its own tensor, because embeddings come from the original table.
 */
export async function dequantizedModel(
  model: LoadedModel,
  bits: WeightBits,
  headBits: WeightBits,
  cacheDirectory: string,
): Promise<LoadedModel> {
  const widened = new Map<string, Float32Array>();
  const ranges = await quantizedWeights(model, bits, headBits, cacheDirectory);
  for (const linear of quantizedLinears(model, bits, headBits)) {
    const range = ranges.get(linear.name);
    if (range === undefined || linear.bits === 32)
      throw new Error(`No quantised weights were made for ${linear.name}.`);
    const bytes = await readFile(range.values.file);
    const part = ({ offset, bytes: length }: { readonly offset: number; readonly bytes: number }) =>
      new Uint8Array(bytes.subarray(offset, offset + length));
    const matrix = { values: part(range.values), scales: new Float32Array(part(range.scales).buffer) };
    const stacked = dequantizeMatrix(matrix, linear.rows, linear.columns, linear.bits, BLOCK_SIZE);
    for (const [name, tensor] of unstack(linear, stacked, model.tensors)) widened.set(name, tensor);
  }
  const tiedHead = widened.get('model.embed_tokens.weight');
  if (tiedHead !== undefined) {
    widened.delete('model.embed_tokens.weight');
    widened.set('lm_head.weight', tiedHead);
  }
  const { tensors } = model;
  return {
    directory: model.directory,
    config: tiedHead === undefined ? model.config : { ...model.config, tiedEmbeddings: false },
    tensors: {
      has: (name) => widened.has(name) || tensors.has(name),
      info: (name) => tensors.info(name),
      read: (name) => widened.get(name) ?? tensors.read(name),
    },
  };
}

function unstack(linear: LinearLayer, stacked: Float32Array, tensors: TensorStore): [string, Float32Array][] {
  let offset = 0;
  return linear.parts.map((part) => {
    const length = tensors.info(part).shape.reduce((product, dimension) => product * dimension, 1);
    offset += length;
    return [part, stacked.subarray(offset - length, offset)];
  });
}
