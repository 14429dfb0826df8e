import { ModelError } from '../../errors.ts';
import { readBytes, readPieces, type StoredTensor, type TensorSource } from '../../safetensors.ts';
import { BLOCK_SIZES, type BlockSize, blockedNames } from '../../tensors.ts';
import { transposed } from '../matrices.ts';
import type { Float8, Tile } from './config.ts';
import { expectStored, MISMATCH, readScales, type Stored } from './stored.ts';

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

/** Bytes of 32-bit floats that a conversion makes at a time; a single row may take more. */
const PIECE_BYTES = 4 << 20;
/** The largest e4m3 value. */
const LARGEST = 448;

/**
 * The value of each byte as e4m3: sign, 4 bits of exponent with the bias 7, 3 bits of fraction, NaN at 0x7f and 0xff,
 * no infinities.
 */
const VALUES = Float32Array.from({ length: 256 }, (_, byte) => {
  const exponent = (byte >> 3) & 15;
  const fraction = byte & 7;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
  return byte < 128 ? magnitude : -magnitude;
});

/**
 * A matrix of 8-bit floats as 32-bit floats: value × scale, rounded once; `shared` tells which values share a scale.
 * Null when the checkpoint has the matrix as plain floats.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 */
export function float8Source(
  { scales: suffixes, shared }: Float8,
  stored: Stored,
  name: string,
  shape: readonly number[],
): TensorSource | null {
  const weight = stored.find(name);
  const base = name.replace(/weight$/, '');
  const scaleNames = suffixes.map((suffix) => base + suffix);
  const present = scaleNames.filter((each) => stored.find(each) !== undefined);
  if (weight?.dtype !== 'F8_E4M3') {
    if (present.length > 0) throw contradiction(`"${present[0]}" scales "${name}", which has no 8-bit floats`);
    return null;
  }
  expectStored(name, weight, 'F8_E4M3', shape);
  if (present.length > 1) throw contradiction(`"${name}" has two scales: ${present.join(' and ')}`);
  const scaleName = present[0] ?? (scaleNames[0] as string);
  const scale = stored.require(scaleName, name);
  const [rows = 0, columns = 0] = shape;
  expectStored(scaleName, scale, 'floats', ...scaleShapes(shared, shape));
  // Rejects bad scales now; `data` reads them again.
  readScales(scaleName, scale, LARGEST);
  const tile = tileOf(shared, rows, columns);
  return { name, shape, data: () => values(name, weight, readScales(scaleName, scale, LARGEST), tile) };
}

/** Size of the part of a matrix that shares one scale. */
function tileOf(shared: Float8['shared'], rows: number, columns: number): Tile {
  if (shared === 'matrix') return [rows, columns];
  return shared === 'row' ? [1, columns] : shared;
}

/** The shapes that a matrix's scales may have. */
function scaleShapes(shared: Float8['shared'], [rows = 0, columns = 0]: readonly number[]): number[][] {
  if (shared === 'matrix') return [[1], [], [1, 1]];
  if (shared === 'row') return [[rows, 1], [rows]];
  return [[Math.ceil(rows / shared[0]), Math.ceil(columns / shared[1])]];
}

function* values(
  name: string,
  weight: StoredTensor,
  scales: Float32Array,
  [tileRows, tileColumns]: Tile,
): Generator<Uint8Array> {
  const columns = weight.shape[1] ?? 1;
  const tilesOfRow = Math.ceil(columns / tileColumns);
  const rowsOfPiece = Math.max(1, Math.floor(PIECE_BYTES / (4 * columns)));
  let row = 0;
  for (const piece of readPieces(weight, rowsOfPiece * columns)) {
    const floats = new Float32Array(piece.length);
    for (let at = 0; at < piece.length; row++) {
      const end = at + columns;
      for (let tile = Math.floor(row / tileRows) * tilesOfRow; at < end; tile++) {
        const scale = scales[tile] as number;
        for (const last = Math.min(at + tileColumns, end); at < last; at++) {
          const byte = piece[at] as number;
          if ((byte & 127) === 127)
            throw new ModelError('malformed-weights', `"${name}" has a value in row ${row} that is not a number`, {
              hint: 'the checkpoint is damaged, fetch it again',
            });
          floats[at] = (VALUES[byte] as number) * scale;
        }
      }
    }
    yield new Uint8Array(floats.buffer);
  }
}

function contradiction(what: string): ModelError {
  return new ModelError('malformed-weights', what, {
    hint: MISMATCH,
  });
}

/**
 * A matrix of unsigned levels whose columns form groups, as a checkpoint stores it. A value is `(level − zero) × scale`, with a scale and a
 * zero point for each row and group.
 */
export interface GroupedMatrix {
  readonly bits: 4 | 8;
  readonly rows: number;
  readonly columns: number;
  /** Number of groups in a row. */
  readonly groups: number;
  /** Number of columns in a group, if the columns of each group are neighbours and all groups are equally large; else the group of each column. */
  readonly grouping: number | Uint32Array;
  readonly levels: PackedNumbers;
  /** Zero points, `[rows, groups]`; null if all are `2^(bits − 1)`. `lessOne` is true if each zero point is stored minus one (GPTQ). */
  readonly zeros: (PackedNumbers & { readonly lessOne: boolean }) | null;
  /** The tensor of the scales, stored row by row or group by group. */
  readonly scales: { readonly name: string; readonly tensor: StoredTensor; readonly by: 'row' | 'group' };
}

interface PackedNumbers {
  readonly tensor: StoredTensor;
  readonly packing: Packing;
}

/** @throws ModelError `malformed-weights` when a scale, or its product with the largest level, is not finite in 32 bits */
export function readGroupScales({ scales: { name, tensor, by }, bits, rows, groups }: GroupedMatrix): Float32Array {
  const largestLevel = 2 ** bits - 1;
  const scales = readScales(name, tensor, largestLevel);
  return by === 'row' ? scales : transposed(scales, groups, rows);
}

/** Zero points, `[rows, groups]`; null when all are `2^(bits − 1)`. */
export function readZeros({ zeros, bits, rows, groups }: GroupedMatrix): Uint8Array | null {
  if (zeros === null) return null;
  const words = readWords(zeros.tensor);
  // GPTQ's writers subtract from whole words, so a number may borrow from the next one in its word. Adding to whole words undoes each borrow.
  const ones = bits === 4 ? 0x11111111 : 0x01010101;
  const points = unpackRows(zeros.lessOne ? words.map((word) => word + ones) : words, zeros.packing, 0, rows, groups);
  return points.every((point) => point === 2 ** (bits - 1)) ? null : points;
}

/** Dimensions of a matrix whose groups have `size` columns, the last one perhaps fewer. */
export interface Groups {
  readonly columns: number;
  readonly groups: number;
  readonly size: number;
}

/**
 * Checks the tensor of groups, if there is one, and returns the grouping of the matrix.
 *
 * @param index the tensor with the group of each column; null if the checkpoint has none
 * @param reordered true when the columns of a group need not be neighbours
 * @throws ModelError `wrong-shape` or `malformed-weights`
 */
export function groupingOf(
  { columns, groups, size }: Groups,
  index: { readonly name: string; readonly tensor: StoredTensor } | null,
  reordered: boolean,
): GroupedMatrix['grouping'] {
  const orderedGroupOf = Uint32Array.from({ length: columns }, (_, i) => Math.floor(i / size));
  const orderedGrouping = columns % size === 0 ? size : orderedGroupOf;
  if (index === null) return orderedGrouping;
  expectStored(index.name, index.tensor, 'I32', [columns]);
  const groupOf = readWords(index.tensor);
  if (groupOf.every((group, i) => group === orderedGroupOf[i])) return orderedGrouping;
  // The tensor has signed numbers, read as unsigned ones here, so a negative group becomes too large. `| 0` makes the number signed again.
  const wrongColumn = groupOf.findIndex((group) => group >= groups);
  if (wrongColumn >= 0)
    throw new ModelError(
      'malformed-weights',
      `"${index.name}" has group ${(groupOf[wrongColumn] as number) | 0} at place ${wrongColumn}`,
      {
        hint: `its groups are 0 to ${groups - 1}: the checkpoint is damaged, fetch it again`,
      },
    );
  if (!reordered)
    throw new ModelError('malformed-weights', `"${index.name}" reorders the columns, which config.json excludes`, {
      hint: MISMATCH,
    });
  return groupOf;
}

/** Layout of a matrix of small unsigned numbers in 32-bit words. Each word holds several neighbours along one dimension. */
export interface Packing {
  readonly bits: 4 | 8;
  /** The dimension whose neighbours share a word. */
  readonly along: 'rows' | 'columns';
  /** Distance in words from a row, or from a group of rows that share a word, to the next. */
  readonly rowStride: number;
  /** Distance in words from a column, or from a group of columns that share a word, to the next. */
  readonly columnStride: number;
  /** Place of each neighbour in its word, counted from the lowest bits; in order by default. */
  readonly places?: readonly number[];
}

/** Reads a tensor of 32-bit integers as unsigned words. */
export function readWords(tensor: StoredTensor): Uint32Array {
  const bytes = readBytes(tensor);
  return new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
}

/** Unpacks some rows of a matrix, one number per byte. */
export function unpackRows(
  words: Uint32Array,
  { bits, along, rowStride, columnStride, places }: Packing,
  firstRow: number,
  count: number,
  columns: number,
): Uint8Array {
  const numbersPerWord = 32 / bits;
  const mask = 2 ** bits - 1;
  const shifts = Array.from({ length: numbersPerWord }, (_, i) => bits * (places?.[i] ?? i));
  const numbers = new Uint8Array(count * columns);
  for (let row = firstRow, to = 0; row < firstRow + count; row++) {
    if (along === 'rows') {
      const shift = shifts[row % numbersPerWord] as number;
      const line = rowStride * Math.floor(row / numbersPerWord);
      for (let column = 0; column < columns; column++)
        numbers[to++] = ((words[line + columnStride * column] as number) >>> shift) & mask;
    } else {
      const end = to + columns;
      for (let at = rowStride * row; to < end; at += columnStride) {
        const word = words[at] as number;
        for (let i = 0; i < numbersPerWord && to < end; i++) numbers[to++] = (word >>> (shifts[i] as number)) & mask;
      }
    }
  }
  return numbers;
}
