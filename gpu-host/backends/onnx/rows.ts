import type { SequenceInput } from '../backend.ts';
import type { RunCosts } from './packing.ts';

/** One row of a run: a sequence, or several that read the same slots first. */
export interface Row {
  readonly members: readonly RowMember[];
  /** Inputs of all members. */
  readonly tokens: number;
  /** Context slots of the row: the shared ones once, then each member's own. */
  readonly context: number;
  /** Leading context slots that all members read. */
  readonly shared: number;
}

export interface RowMember {
  /** Place in the batch. */
  readonly index: number;
  readonly sequence: SequenceInput;
  /** Where its inputs begin among the row's. */
  readonly firstInput: number;
  /** Where its own context begins among the row's. */
  readonly firstOwn: number;
}

/** Every sequence in a row of its own. */
export function separateRows(batch: readonly SequenceInput[]): Row[] {
  return batch.map((sequence, index) => rowOf([index], batch, sequence.context.length));
}

/**
 * Sequences whose contexts begin with the same slots (forks of one prefix) put into one row, where that is cheaper: the shared keys are
 * then gathered once instead of once each, for the price of scores that the mask hides. Null when there is nothing to share.
 */
export function sharedRows(batch: readonly SequenceInput[], costs: RunCosts): Row[] | null {
  if (batch.length < 2) return null;
  const byFirstSlot = new Map<number, number[]>();
  let candidates = false;
  for (let index = 0; index < batch.length; index++) {
    const { context, mask } = batch[index];
    if (mask !== 'causal' || context.length === 0) continue;
    const group = byFirstSlot.get(context[0]);
    if (group === undefined) byFirstSlot.set(context[0], [index]);
    else {
      group.push(index);
      candidates = true;
    }
  }
  if (!candidates) return null;
  const rows: Row[] = [];
  const merged = new Set<number>();
  for (const group of byFirstSlot.values()) {
    if (group.length < 2) continue;
    const row = rowOf(group, batch, commonPrefix(group, batch));
    if (savings(row, costs) <= 0) continue;
    rows.push(row);
    for (const index of group) merged.add(index);
  }
  if (rows.length === 0) return null;
  batch.forEach((sequence, index) => {
    if (!merged.has(index)) rows.push(rowOf([index], batch, sequence.context.length));
  });
  return rows;
}

function rowOf(indices: readonly number[], batch: readonly SequenceInput[], shared: number): Row {
  let tokens = 0;
  let context = shared;
  const members = indices.map((index): RowMember => {
    const sequence = batch[index];
    const member = { index, sequence, firstInput: tokens, firstOwn: context };
    tokens += sequence.positions.length;
    context += sequence.context.length - shared;
    return member;
  });
  return { members, tokens, context, shared };
}

function commonPrefix(group: readonly number[], batch: readonly SequenceInput[]): number {
  const first = batch[group[0]].context;
  let length = first.length;
  for (const index of group) {
    const { context } = batch[index];
    let same = 0;
    const end = Math.min(length, context.length);
    while (same < end && context[same] === first[same]) same++;
    length = same;
  }
  return length;
}

/** Nanoseconds saved by the attention of a row over that of its members apart; the rest of a step is the same. */
function savings({ members, tokens, context }: Row, costs: RunCosts): number {
  const width = context + tokens;
  let apart = 0;
  for (const { sequence } of members) {
    const inputs = sequence.positions.length;
    apart += (sequence.context.length + inputs) * (costs.perRow + inputs * costs.perScore);
  }
  return apart - width * (costs.perRow + tokens * costs.perScore);
}
