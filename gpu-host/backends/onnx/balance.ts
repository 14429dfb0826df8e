import type { SequenceInput } from '../backend.ts';
import { type RowShape, type RunCosts, rowCost } from './packing.ts';
import { jointRow, type Row } from './rows.ts';

/** Sequences per row that are tried. More of them hide more scores from each other. */
const DEALS = [2, 4, 8];
/** Padding below this share of a batch's cost is left alone. */
const MIN_PADDING = 0.03;

/** Whether a row may be dealt anew: one sequence that sees all of its context and every input before. */
export function isMovable({ members, slots }: Row): boolean {
  const [{ sequence }] = members;
  return members.length === 1 && slots === null && sequence.mask === 'causal' && sequence.attention !== true;
}

/** Whether so many rows cost enough more than they would without any padding. */
export function isWorthDealing(rows: readonly RowShape[], cost: number, costs: RunCosts): boolean {
  const unpadded = rows.reduce((sum, row) => sum + rowCost(row, costs), costs.perRun);
  return cost - unpadded > MIN_PADDING * cost;
}

/**
 * Unlike sequences dealt into rows that are about equally long: the longest beside the shortest. A row of several costs scores that the
 * mask hides, and saves the inputs, keys and values that would only pad the short ones. One way for each number of sequences per row.
 */
export function dealtRows(batch: readonly SequenceInput[], rows: readonly Row[], costs: RunCosts): Row[][] {
  const cost = new Map(rows.map((row) => [row, rowCost(row, costs)]));
  const byCost = rows.toSorted((a, b) => (cost.get(b) ?? 0) - (cost.get(a) ?? 0));
  return DEALS.filter((perRow) => perRow <= rows.length).map((perRow) =>
    deal(byCost, Math.ceil(rows.length / perRow)).map((hand) => {
      if (hand.length === 1) return hand[0];
      return jointRow(
        hand.map(({ members }) => members[0].index),
        batch,
      );
    }),
  );
}

/** Hands items out to so many hands, forwards and backwards by turns. */
function deal<T>(items: readonly T[], hands: number): T[][] {
  const dealt = Array.from({ length: hands }, (): T[] => []);
  items.forEach((item, i) => {
    const place = i % hands;
    const isBackwards = Math.floor(i / hands) % 2 === 1;
    dealt[isBackwards ? hands - 1 - place : place].push(item);
  });
  return dealt;
}
