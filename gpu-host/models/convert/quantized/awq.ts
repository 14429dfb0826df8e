import type { Awq } from './config.ts';
import { type GroupedMatrix, groupingOf } from './grouped.ts';
import { expectStored, type Stored } from './stored.ts';

/** For each of the eight outputs in a word: the place of its 4 bits, counted from the lowest bits. */
const PLACES = [0, 4, 1, 5, 2, 6, 3, 7];
const BITS = 4;
const LEVELS_PER_WORD = 32 / BITS;

/**
 * A matrix in AWQ's layout "gemm". Null when the checkpoint has the matrix as plain floats.
 *
 * A word of `qweight` holds the levels of eight outputs for one input. A word of `qzeros` holds the zero points of eight outputs for one group.
 * The numbers in a word are in an order that AWQ's kernel unpacks fast.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 * @see https://github.com/casper-hansen/AutoAWQ/blob/main/awq/utils/packing_utils.py
 */
export function awqMatrix(
  { groupSize }: Awq,
  stored: Stored,
  name: string,
  [rows = 0, columns = 0]: readonly number[],
): GroupedMatrix | null {
  const named = (end: string) => name.replace(/weight$/, end);
  const levels = stored.findInstead(named('qweight'), name);
  if (levels === null) return null;
  const zeros = stored.require(named('qzeros'), name);
  const scales = stored.require(named('scales'), name);
  const size = groupSize ?? columns;
  const groups = columns / size;
  const words = rows / LEVELS_PER_WORD;
  expectStored(named('qweight'), levels, 'I32', [columns, words]);
  expectStored(named('qzeros'), zeros, 'I32', [groups, words]);
  expectStored(named('scales'), scales, 'floats', [groups, rows]);
  const packing = { bits: BITS, along: 'rows', rowStride: 1, columnStride: words, places: PLACES } as const;
  return {
    bits: BITS,
    rows,
    columns,
    groups,
    // AWQ has no tensor of groups: a group's columns are always neighbours.
    grouping: groupingOf({ columns, groups, size }, null, false),
    levels: { tensor: levels, packing },
    zeros: { tensor: zeros, packing, lessOne: false },
    scales: { name: named('scales'), tensor: scales, by: 'group' },
  };
}
