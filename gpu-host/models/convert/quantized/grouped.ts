import { ModelError } from '../../errors.ts';
import type { StoredTensor } from '../../safetensors.ts';
import { transposed } from '../matrices.ts';
import { expectStored, MISMATCH, readScales } from './stored.ts';
import { type Packing, readWords, unpackRows } from './words.ts';

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
