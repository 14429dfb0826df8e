import type { Gptq } from './config.ts';
import { type GroupedMatrix, groupingOf } from './grouped.ts';
import { expectStored, type Stored } from './stored.ts';

/**
 * A matrix in GPTQ's layout. Null when the checkpoint has the matrix as plain floats.
 *
 * A word of 32 bits holds eight numbers of 4 bits, or four numbers of 8 bits. A word of `qweight` holds the levels of
 * neighbouring inputs for one output. A word of `qzeros` holds the zero points of neighbouring outputs for one group.
 * `g_idx` has the group of each input.
 *
 * The first of GPTQ's two formats stores each zero point minus one. Its writers subtract the ones from a whole word, so
 * a zero point of 0 borrows from the number above it in the word. `readZeros` therefore adds the ones to whole words.
 *
 * @throws ModelError `missing-tensor`, `wrong-shape` or `malformed-weights`
 * @see https://github.com/ModelCloud/GPTQModel/blob/main/gptqmodel/utils/model.py (`convert_gptq_v1_to_v2_format_module`)
 */
export function gptqMatrix(
  { bits, groupSize, zerosLessOne, reordered }: Gptq,
  stored: Stored,
  name: string,
  [rows = 0, columns = 0]: readonly number[],
): GroupedMatrix | null {
  const named = (end: string) => name.replace(/weight$/, end);
  const levels = stored.findInstead(named('qweight'), name);
  if (levels === null) return null;
  const zeros = stored.require(named('qzeros'), name);
  const scales = stored.require(named('scales'), name);
  const index = reordered ? stored.require(named('g_idx'), name) : stored.find(named('g_idx'));
  const size = groupSize ?? columns;
  const groups = Math.ceil(columns / size);
  const levelsPerWord = 32 / bits;
  expectStored(named('qweight'), levels, 'I32', [columns / levelsPerWord, rows]);
  expectStored(named('qzeros'), zeros, 'I32', [groups, rows / levelsPerWord]);
  expectStored(named('scales'), scales, 'floats', [groups, rows]);
  const grouping = groupingOf(
    { columns, groups, size },
    index === undefined ? null : { name: named('g_idx'), tensor: index },
    reordered,
  );
  return {
    bits,
    rows,
    columns,
    groups,
    grouping,
    levels: {
      tensor: levels,
      packing: { bits, along: 'columns', rowStride: 1, columnStride: rows },
    },
    zeros: {
      tensor: zeros,
      lessOne: zerosLessOne,
      packing: { bits, along: 'rows', rowStride: 1, columnStride: rows / levelsPerWord },
    },
    scales: { name: named('scales'), tensor: scales, by: 'group' },
  };
}
