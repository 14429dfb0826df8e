import { BLOCK_SIZES, type BlockSize, blockedNames } from '../../blocks.ts';
import type { TensorSource } from '../../safetensors.ts';
import { type GroupedMatrix, readGroupScales, readZeros } from './grouped.ts';
import { readWords, unpackRows } from './words.ts';

/** Number of levels that a conversion unpacks at a time; a single row may have more. */
const PIECE_VALUES = 1 << 20;
/** Backends look up single rows of this matrix, and they cannot do this in a matrix of blocks with zero points. */
const EMBEDDINGS = 'model.embed_tokens.weight';

/**
 * The tensors that a matrix becomes. The matrix becomes blocks with exactly the same levels, zero points and scales if each group is the same
 * number of neighbouring columns, and one of Pie's block sizes divides this number. Otherwise, and for embeddings with zero points, the matrix
 * becomes one tensor of 32-bit floats, and each value is rounded once.
 *
 * The levels or floats are computed some rows at a time. Meanwhile the packed words of the whole matrix stay in memory.
 *
 * @throws ModelError `malformed-weights` when a scale, or its product with the largest level, is not finite in 32 bits
 */
export function groupedSources(name: string, matrix: GroupedMatrix): TensorSource[] {
  const { grouping } = matrix;
  // Refuses a wrong scale before the first tensor of the checkpoint is written.
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
  const blocksOfRow = columns / size;
  const names = blockedNames(name, bits === 4 ? 'int4' : 'int8');
  const levels: TensorSource = {
    name: names.levels,
    shape: [rows, blocksOfRow, (size * bits) / 8],
    dtype: 'U8',
    data: () => levelsOf(matrix),
  };
  const scales: TensorSource = {
    name: names.scales,
    shape: [rows, blocksOfRow],
    data: () => repeated(readGroupScales(matrix), blocksOfGroup),
  };
  const zeros: TensorSource = {
    name: names.zeros,
    shape: [rows, Math.ceil((blocksOfRow * bits) / 8)],
    dtype: 'U8',
    data: () => [packedRows(repeated(readZeros(matrix) ?? new Uint8Array(0), blocksOfGroup), blocksOfRow, bits)],
  };
  return hasZeros ? [levels, scales, zeros] : [levels, scales];
}

/** The values in order, each `times` times. */
function repeated<T extends Float32Array | Uint8Array>(values: T, times: number): T {
  const result = new (values.constructor as new (length: number) => T)(values.length * times);
  for (let i = 0; i < result.length; i++) result[i] = values[Math.floor(i / times)] as number;
  return result;
}

/** Packs rows of numbers, one per byte, into `bits` bits each. Each packed row begins with a new byte. */
function packedRows(numbers: Uint8Array, columns: number, bits: 4 | 8): Uint8Array {
  if (bits === 8) return numbers;
  const rowBytes = Math.ceil(columns / 2);
  const packed = new Uint8Array((numbers.length / columns) * rowBytes);
  for (let rowStart = 0, at = 0; at < numbers.length; rowStart += rowBytes) {
    for (let column = 0; column < columns; column++, at++) {
      const to = rowStart + (column >> 1);
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
  // A matrix without zero points has the middle level as its zero point everywhere.
  const zeros = readZeros(matrix) ?? new Uint8Array(scales.length).fill(2 ** (bits - 1));
  for (const { firstRow, levels } of pieces(matrix)) {
    const floats = new Float32Array(levels.length);
    // A row's scales and zero points begin at `firstGroup`.
    for (let firstGroup = firstRow * groups, at = 0; at < levels.length; firstGroup += groups) {
      for (let column = 0; column < columns; column++, at++) {
        const group = firstGroup + (groupOf[column] as number);
        floats[at] = ((levels[at] as number) - (zeros[group] as number)) * (scales[group] as number);
      }
    }
    yield new Uint8Array(floats.buffer);
  }
}

/** Yields the levels of a matrix some rows at a time, one level per byte. */
function* pieces({ levels, rows, columns }: GroupedMatrix): Generator<{ firstRow: number; levels: Uint8Array }> {
  const words = readWords(levels.tensor);
  const rowsPerPiece = Math.max(1, Math.floor(PIECE_VALUES / columns));
  for (let firstRow = 0; firstRow < rows; firstRow += rowsPerPiece) {
    const count = Math.min(rowsPerPiece, rows - firstRow);
    yield { firstRow, levels: unpackRows(words, levels.packing, firstRow, count, columns) };
  }
}
