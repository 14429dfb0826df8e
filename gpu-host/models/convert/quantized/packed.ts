import { ModelError } from '../../errors.ts';
import { readBytes, type StoredTensor } from '../../safetensors.ts';
import type { Packed } from './config.ts';
import { type GroupedMatrix, groupingOf } from './grouped.ts';
import { expectStored, type Stored } from './stored.ts';

/**
 * A matrix in compressed-tensors' format "pack-quantized". Null when the checkpoint has the matrix as plain floats.
 *
 * A word of levels holds neighbouring levels of a row. A word of zero points holds those of neighbouring rows for one group. The last word of a
 * row of levels, or of a column of zero points, may have padding.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 * @see https://github.com/neuralmagic/compressed-tensors/blob/main/src/compressed_tensors/compressors/quantized_compressors/pack_quantized.py
 */
export function packedMatrix(
  { bits, groupSize, hasZeros, reordered }: Packed,
  stored: Stored,
  name: string,
  shape: readonly number[],
): GroupedMatrix | null {
  const named = (end: string) => `${name}_${end}`;
  const levels = stored.findInstead(named('packed'), name);
  if (levels === null) return null;
  const [rows = 0, columns = 0] = shape;
  const scales = stored.require(named('scale'), name);
  const zeros = hasZeros ? stored.require(named('zero_point'), name) : null;
  const index = reordered ? { name: named('g_idx'), tensor: stored.require(named('g_idx'), name) } : null;
  const size = groupSize ?? columns;
  const groups = Math.ceil(columns / size);
  const wordsOf = (count: number) => Math.ceil((count * bits) / 32);
  expectStored(named('packed'), levels, 'I32', [rows, wordsOf(columns)]);
  expectStored(named('scale'), scales, 'floats', [rows, groups]);
  if (zeros !== null) expectStored(named('zero_point'), zeros, 'I32', [wordsOf(rows), groups]);
  checkShape(named('shape'), stored.find(named('shape')), shape);
  return {
    bits,
    rows,
    columns,
    groups,
    grouping: groupingOf({ columns, groups, size }, index, reordered),
    levels: {
      tensor: levels,
      packing: { bits, along: 'columns', rowStride: wordsOf(columns), columnStride: 1 },
    },
    zeros: zeros && {
      tensor: zeros,
      lessOne: false,
      packing: { bits, along: 'rows', rowStride: groups, columnStride: 1 },
    },
    scales: { name: named('scale'), tensor: scales, by: 'row' },
  };
}

/** Checks the tensor that holds the shape of the matrix before packing. A checkpoint need not have this tensor. */
function checkShape(name: string, tensor: StoredTensor | undefined, shape: readonly number[]): void {
  if (tensor === undefined) return;
  expectStored(name, tensor, tensor.dtype === 'I32' ? 'I32' : 'I64', [2]);
  const bytes = readBytes(tensor);
  const found = [0, 1].map((i) =>
    tensor.dtype === 'I32' ? bytes.readInt32LE(4 * i) : Number(bytes.readBigInt64LE(8 * i)),
  );
  if (String(found) === String(shape)) return;
  throw new ModelError(
    'wrong-shape',
    `"${name}" holds the shape [${found.join(', ')}], but config.json implies [${shape.join(', ')}]`,
  );
}
