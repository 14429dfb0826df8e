import type { SequenceInput } from '../backend.ts';
import type { RunShape } from './packing.ts';
import { columnOf, type Row, type RowMember } from './rows.ts';

/** Added to the score of a key that must not be seen. Finite, so that a row that sees nothing at all has no NaN. */
export const HIDDEN = -1e30;

/** Fills `rows × tokens × width` additive masks: 0 where an input sees a column, {@link HIDDEN} elsewhere. */
export function fillBias(bias: Float32Array, rows: readonly Row[], shape: RunShape): void {
  const { tokens, width } = shape;
  rows.forEach((row, r) => {
    for (const member of row.members) {
      const start = (r * tokens + member.firstInput) * width;
      if (member.links === null && member.sequence.mask === 'causal') fillCausal(bias, start, row, member, shape);
      else fillAny(bias, start, member, shape);
    }
    // The results of padded inputs are dropped, but they must stay finite.
    bias.fill(0, (r * tokens + row.tokens) * width, (r + 1) * tokens * width);
  });
}

/** True when an input sees no key at all. That input attends to the null slot, whose value is zero, in a column of its own. */
export function hasBlindInput({ mask, positions, context }: SequenceInput): boolean {
  if (mask === 'causal') return false;
  const width = context.length + positions.length;
  for (let row = 0; row < positions.length; row++) {
    if (!mask.subarray(row * width, (row + 1) * width).some((seen) => seen !== 0)) return true;
  }
  return false;
}

/** The causal mask of a member: it sees the row's shared context, its own context, and its inputs up to the current one. */
function fillCausal(
  bias: Float32Array,
  memberStart: number,
  row: Row,
  member: RowMember,
  { tokens, width }: RunShape,
): void {
  const { sequence, firstInput, firstOwn } = member;
  const ownEnd = firstOwn + sequence.context.length - row.shared;
  for (let t = 0; t < sequence.positions.length; t++) {
    const start = memberStart + t * width;
    const columns = start + tokens;
    if (row.members.length > 1 || tokens > 1) {
      bias.fill(HIDDEN, start, columns);
      bias.fill(HIDDEN, columns + row.shared, columns + firstOwn);
    }
    bias.fill(0, start + firstInput, start + firstInput + t + 1);
    bias.fill(0, columns, columns + row.shared);
    bias.fill(0, columns + firstOwn, columns + ownEnd);
    bias.fill(HIDDEN, columns + ownEnd, start + width);
  }
}

/** Any mask of a member. `links` tells the columns of its context slots; a member without `links` is alone in its row. */
function fillAny(
  bias: Float32Array,
  memberStart: number,
  { sequence, firstInput, links }: RowMember,
  { tokens, width, blind }: RunShape,
): void {
  const { mask, positions, context } = sequence;
  const inputs = positions.length;
  for (let t = 0; t < inputs; t++) {
    const start = memberStart + t * width;
    const maskStart = t * (context.length + inputs);
    let seesAny = false;
    bias.fill(HIDDEN, start, start + width);
    for (let j = 0; j < context.length + inputs; j++) {
      const isHidden = mask === 'causal' ? j > context.length + t : mask[maskStart + j] === 0;
      if (isHidden) continue;
      let column: number;
      if (j >= context.length) column = firstInput + j - context.length;
      else column = links === null ? tokens + j : columnOf(links[j], tokens);
      bias[start + column] = 0;
      seesAny = true;
    }
    if (blind && !seesAny) bias[start + width - 1] = 0;
  }
}
