import type { SequenceInput } from '../backend.ts';
import { type RowShape, type RunCosts, rowCost } from './packing.ts';
import { jointRow, type Row } from './rows.ts';

/** Numbers of sequences per row to try. The more sequences share a row, the more scores the mask hides. */
const SEQUENCES_PER_ROW = [2, 4, 8];
/** Minimum share of padding in a batch's cost: below this share, the sequences keep their rows. */
const MIN_PADDING = 0.03;

/** True when a row's sequence may move to a row with others: it is alone in its row, and sees its whole context and every earlier input. */
export function isMovable({ members, slots }: Row): boolean {
  const [{ sequence }] = members;
  return members.length === 1 && slots === null && sequence.mask === 'causal' && sequence.attention !== true;
}

/** True when padding makes up enough of `cost` to justify {@link dealtRows}. */
export function isWorthDealing(rows: readonly RowShape[], cost: number, costs: RunCosts): boolean {
  const unpadded = rows.reduce((sum, row) => sum + rowCost(row, costs), costs.perRun);
  return cost - unpadded > MIN_PADDING * cost;
}

/**
 * Deals unlike sequences into rows of about equal length: the longest beside the shortest. A row of several sequences costs scores that the
 * mask hides, and saves inputs, keys and values that would only pad short rows. Returns one deal for each number of sequences per row.
 */
export function dealtRows(batch: readonly SequenceInput[], rows: readonly Row[], costs: RunCosts): Row[][] {
  const cost = new Map(rows.map((row) => [row, rowCost(row, costs)]));
  const byCost = rows.toSorted((a, b) => (cost.get(b) ?? 0) - (cost.get(a) ?? 0));
  return SEQUENCES_PER_ROW.filter((perRow) => perRow <= rows.length).map((perRow) =>
    deal(byCost, Math.ceil(rows.length / perRow)).map((hand) => {
      if (hand.length === 1) return hand[0];
      return jointRow(
        hand.map(({ members }) => members[0].index),
        batch,
      );
    }),
  );
}

/** Deals items to the given number of hands, forwards and backwards by turns, so that hands of falling items get about equal sums. */
function deal<T>(items: readonly T[], hands: number): T[][] {
  const dealt = Array.from({ length: hands }, (): T[] => []);
  items.forEach((item, i) => {
    const offset = i % hands;
    const isBackwards = Math.floor(i / hands) % 2 === 1;
    dealt[isBackwards ? hands - 1 - offset : offset].push(item);
  });
  return dealt;
}
