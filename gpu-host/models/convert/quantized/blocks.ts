import { BLOCK_SIZES, type BlockSize, blockedNames } from '../../blocks.ts';
import type { TensorSource } from '../../safetensors.ts';
import { type GroupedMatrix, readGroupScales, readZeros } from './grouped.ts';
import { readWords, unpackRows } from './words.ts';

/** Levels that a conversion unpacks at a time; a row may be longer. */
const PIECE_VALUES = 1 << 20;
/** Backends look up single rows of this matrix, which they support without zero points only. */
const EMBEDDINGS = 'model.embed_tokens.weight';

/**
 * The tensors that hold a matrix: blocks with exactly the same levels, zero points and scales, if one of Pie's block sizes divides the group size;
 * else 32-bit floats, each product rounded once. Besides pieces, a conversion keeps the words of one matrix in memory.
 *
 * @throws ModelError `malformed-weights` when a scale is not finite
 */
export function groupedSources(name: string, matrix: GroupedMatrix): TensorSource[] {
  const { grouping } = matrix;
  readGroupScales(matrix);
  const hasZeros = readZeros(matrix) !== null;
  const size = typeof grouping === 'number' ? BLOCK_SIZES.find((each) => grouping % each === 0) : undefined;
  if (typeof grouping === 'number' && size !== undefined && !(hasZeros && name === EMBEDDINGS))
    return blockSources(name, matrix, size, grouping / size, hasZeros);
  return [{ name, shape: [matrix.rows, matrix.columns], data: () => floatsOf(matrix) }];
}

function blockSources(
  name: string,
  matrix: GroupedMatrix,
  size: BlockSize,
  blocksOfGroup: number,
  hasZeros: boolean,
): TensorSource[] {
  const { rows, columns, bits } = matrix;
  const blocks = columns / size;
  const names = blockedNames(name, bits === 4 ? 'int4' : 'int8');
  const levels: TensorSource = {
    ...{ name: names.levels, shape: [rows, blocks, (size * bits) / 8], dtype: 'U8' },
    data: () => levelsOf(matrix),
  };
  const scales: TensorSource = {
    ...{ name: names.scales, shape: [rows, blocks] },
    data: () => repeated(readGroupScales(matrix), blocksOfGroup),
  };
  const zeros: TensorSource = {
    ...{ name: names.zeros, shape: [rows, Math.ceil((blocks * bits) / 8)], dtype: 'U8' },
    data: () => [packedRows(repeated(readZeros(matrix) ?? new Uint8Array(0), blocksOfGroup), blocks, bits)],
  };
  return hasZeros ? [levels, scales, zeros] : [levels, scales];
}

/** Every value several times in succession. */
function repeated<T extends Float32Array | Uint8Array>(values: T, times: number): T {
  const result = new (values.constructor as new (length: number) => T)(values.length * times);
  for (let i = 0; i < result.length; i++) result[i] = values[Math.floor(i / times)] as number;
  return result;
}

/** Packs rows of numbers, of which each takes a byte, into `bits` bits each. Each row begins at a byte. */
function packedRows(numbers: Uint8Array, columns: number, bits: 4 | 8): Uint8Array {
  if (bits === 8) return numbers;
  const rowBytes = Math.ceil(columns / 2);
  const packed = new Uint8Array((numbers.length / columns) * rowBytes);
  for (let line = 0, at = 0; at < numbers.length; line += rowBytes) {
    for (let column = 0; column < columns; column++, at++) {
      const to = line + (column >> 1);
      packed[to] = (packed[to] as number) | ((numbers[at] as number) << ((column & 1) * 4));
    }
  }
  return packed;
}

function* levelsOf(matrix: GroupedMatrix): Generator<Uint8Array> {
  for (const { levels } of pieces(matrix)) yield packedRows(levels, matrix.columns, matrix.bits);
}

function* floatsOf(matrix: GroupedMatrix): Generator<Uint8Array> {
  const { bits, columns, groups, grouping } = matrix;
  const groupOf =
    typeof grouping === 'number' ? Uint32Array.from({ length: columns }, (_, i) => Math.floor(i / grouping)) : grouping;
  const scales = readGroupScales(matrix);
  const zeros = readZeros(matrix) ?? new Uint8Array(scales.length).fill(2 ** (bits - 1));
  for (const { first, levels } of pieces(matrix)) {
    const floats = new Float32Array(levels.length);
    for (let line = first * groups, at = 0; at < levels.length; line += groups) {
      for (let column = 0; column < columns; column++, at++) {
        const group = line + (groupOf[column] as number);
        floats[at] = ((levels[at] as number) - (zeros[group] as number)) * (scales[group] as number);
      }
    }
    yield new Uint8Array(floats.buffer);
  }
}

/** Yields the levels of a matrix some rows at a time, one level per byte. */
function* pieces({ levels, rows, columns }: GroupedMatrix): Generator<{ first: number; levels: Uint8Array }> {
  const words = readWords(levels.tensor);
  const step = Math.max(1, Math.floor(PIECE_VALUES / columns));
  for (let first = 0; first < rows; first += step) {
    const count = Math.min(step, rows - first);
    yield { first, levels: unpackRows(words, levels.packing, first, count, columns) };
  }
}
