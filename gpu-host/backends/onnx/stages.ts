import type { SequenceInput } from '../backend.ts';
import { fitsScores, type RunCosts, rowCost } from './packing.ts';
import { linkedRow } from './rows.ts';

/**
 * Finds the sequences of a batch that read slots which earlier sequences write. Most batches have no such sequence, so the search is one pass
 * over the contexts with one byte per slot. The bytes are kept between batches.
 */
export class DependencyFinder {
  /** 1 for slots that a sequence seen so far writes; all 0 between calls. */
  readonly #written: Uint8Array;

  constructor(slotCount: number) {
    this.#written = new Uint8Array(slotCount);
  }

  /** For each sequence, the earlier sequences whose writes it reads, ascending; null when no sequence reads an earlier one's writes. */
  find(batch: readonly SequenceInput[]): readonly (readonly number[])[] | null {
    if (batch.length < 2) return null;
    let hasDependency = false;
    for (const { context, writes } of batch) {
      if (this.#readsWritten(context)) {
        hasDependency = true;
        break;
      }
      for (let i = 0; i < writes.length; i++) this.#written[writes[i]] = 1;
    }
    for (const { writes } of batch) for (let i = 0; i < writes.length; i++) this.#written[writes[i]] = 0;
    return hasDependency ? writersRead(batch) : null;
  }

  #readsWritten(context: Uint32Array): boolean {
    const written = this.#written;
    let sum = 0;
    for (let i = 0; i < context.length; i++) sum += written[context[i]];
    return sum > 0;
  }
}

/** A single sequence, or sequences that share a row: each reads what another of them writes, or is read by another. */
export interface Group {
  /** The groups of a stage are computed after the keys and values of the earlier stages are stored. */
  readonly stage: number;
  /** Indices in the batch, ascending. */
  readonly members: readonly number[];
}

/**
 * Groups each sequence with the sequences of the batch that it reads from. A reader joins its writers' row if no context of the row names a slot
 * twice, the row's scores fit, and those that the mask hides cost at most another pass over the weights. Otherwise the reader waits for the next
 * stage.
 */
export function planGroups(
  batch: readonly SequenceInput[],
  dependencies: readonly (readonly number[])[],
  costs: RunCosts,
  heads: number,
): readonly Group[] {
  let groups: Group[] = [];
  dependencies.forEach((writers, index) => {
    const readGroups = groups.filter(({ members }) => members.some((member) => writers.includes(member)));
    const stage = readGroups.reduce((latest, group) => Math.max(latest, group.stage), 0);
    const joinedGroups = readGroups.filter((group) => group.stage === stage);
    const members = [...joinedGroups.flatMap((group) => group.members), index].toSorted((a, b) => a - b);
    if (joinedGroups.length > 0 && !isWorthJoining(batch, joinedGroups, index, members, costs, heads)) {
      groups.push({ stage: stage + 1, members: [index] });
    } else {
      groups = [...groups.filter((group) => !joinedGroups.includes(group)), { stage, members }];
    }
  });
  return groups;
}

function isWorthJoining(
  batch: readonly SequenceInput[],
  joinedGroups: readonly Group[],
  index: number,
  members: readonly number[],
  costs: RunCosts,
  heads: number,
): boolean {
  if (members.some((member) => repeatsSlot(batch[member].context))) return false;
  const row = linkedRow(batch, members);
  if (!fitsScores(row, heads)) return false;
  const { positions, context } = batch[index];
  const separateCost = joinedGroups.reduce(
    (sum, { members }) => sum + rowCost(linkedRow(batch, members), costs),
    costs.perRun + rowCost({ tokens: positions.length, context: context.length }, costs),
  );
  return rowCost(row, costs) <= separateCost;
}

/** True when a context names a slot twice. Attention must count such a slot twice, but a linked row has one column for it. */
function repeatsSlot(context: Uint32Array): boolean {
  return new Set(context).size < context.length;
}

function writersRead(batch: readonly SequenceInput[]): number[][] {
  const writerOf = new Map<number, number>();
  return batch.map(({ context, writes }, index) => {
    const writers = new Set<number>();
    for (const slot of context) {
      const writer = writerOf.get(slot);
      if (writer !== undefined) writers.add(writer);
    }
    for (const slot of writes) writerOf.set(slot, index);
    return [...writers].toSorted((a, b) => a - b);
  });
}
