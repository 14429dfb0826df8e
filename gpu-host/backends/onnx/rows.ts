import type { SequenceInput } from '../backend.ts';
import { fitsScores, type RunCosts, type RunShape, rowCost, SEGMENT_SLOTS } from './packing.ts';

/**
 * One row of a run. It holds one sequence, or several: sequences that share their first context slots, linked sequences (a later one reads slots
 * that an earlier one writes), or sequences that have nothing in common and only fill a row together.
 */
export interface Row {
  readonly members: readonly RowMember[];
  /** Inputs of all members. */
  readonly tokens: number;
  /** Number of context slots: the shared ones, counted once, and those of each member after them. For linked members, the length of {@link slots}. */
  readonly context: number;
  /** Leading context slots that all members read. */
  readonly shared: number;
  /** The distinct context slots of linked members; null for other rows. */
  readonly slots: Uint32Array | null;
  /**
   * Segments (`KvSegments`) that hold the beginning of a decode step's context. The step is then the row's only member, and its `sequence` has
   * only the rest of the context. Empty for other rows.
   */
  readonly segments: readonly number[];
}

export interface RowMember {
  /** Index of the sequence in the batch. */
  readonly index: number;
  readonly sequence: SequenceInput;
  /** Index of the member's first input among the row's inputs. */
  readonly firstInput: number;
  /** Index of the member's own first context slot among the row's context slots. */
  readonly firstOwn: number;
  /** For a linked member, a link for each of its context slots: the column of the row that holds the slot, encoded as {@link columnOf} reads it. */
  readonly links: Int32Array | null;
}

/** The column of a link. The row's inputs fill the first `tokens` columns; link `-1 - i` is the i-th input, `i` the i-th context slot. */
export function columnOf(link: number, tokens: number): number {
  return link < 0 ? -1 - link : tokens + link;
}

/** Every sequence of `indices` in a row of its own. */
export function separateRows(batch: readonly SequenceInput[], indices: readonly number[]): Row[] {
  return indices.map((index) => rowOf([index], batch, batch[index].context.length));
}

/**
 * Puts sequences whose contexts begin with the same slots (forks of one prefix, and forks of forks) into one row where that is cheaper. The run then
 * gathers the shared keys once, not once for each sequence. In return it computes scores between sequences, which the mask hides. Null when no row
 * of several sequences is cheaper within the bound on scores.
 */
export function sharedRows(
  batch: readonly SequenceInput[],
  indices: readonly number[],
  costs: RunCosts,
  heads: number,
): Row[] | null {
  if (indices.length < 2) return null;
  const byFirstSlot = new Map<number, number[]>();
  let hasForks = false;
  for (const index of indices) {
    const { context, mask } = batch[index];
    if (mask !== 'causal' || context.length === 0) continue;
    const group = byFirstSlot.get(context[0]);
    if (group === undefined) byFirstSlot.set(context[0], [index]);
    else {
      group.push(index);
      hasForks = true;
    }
  }
  if (!hasForks) return null;
  const rows: Row[] = [];
  const mergedIndices = new Set<number>();
  for (const group of byFirstSlot.values()) {
    if (group.length < 2) continue;
    for (const fork of cheapestCut(forkOf(group, 0, batch), batch, costs, heads).rows) {
      rows.push(rowOfFork(fork, batch));
      for (const index of fork.members) mergedIndices.add(index);
    }
  }
  if (rows.length === 0) return null;
  for (const index of indices)
    if (!mergedIndices.has(index)) rows.push(rowOf([index], batch, batch[index].context.length));
  return rows;
}

/** Sequences whose contexts have the same slots up to `end`, and the forks among them. */
interface Fork {
  readonly members: readonly number[];
  readonly end: number;
  /** Forks that go on behind `end`, each with one member or more. Members without a fork have no slot behind `end`. */
  readonly forks: readonly Fork[];
  /** Inputs of all members. */
  readonly tokens: number;
  /** Distinct context slots of all members, those before `end` included. */
  readonly context: number;
}

/** @param from length up to which the members' contexts are known to be equal */
function forkOf(members: readonly number[], from: number, batch: readonly SequenceInput[]): Fork {
  const end = commonPrefix(members, from, batch);
  const byNextSlot = new Map<number, number[]>();
  let tokens = 0;
  for (const index of members) {
    const { context, positions } = batch[index];
    tokens += positions.length;
    if (context.length === end) continue;
    const group = byNextSlot.get(context[end]);
    if (group === undefined) byNextSlot.set(context[end], [index]);
    else group.push(index);
  }
  const forks = [...byNextSlot.values()].map((group) => forkOf(group, end, batch));
  const context = forks.reduce((sum, fork) => sum + fork.context - end, end);
  return { members, end, forks, tokens, context };
}

/** Chooses the forks that become one row each, so that the total cost of all members is least. The other members get separate rows. */
function cheapestCut(
  fork: Fork,
  batch: readonly SequenceInput[],
  costs: RunCosts,
  heads: number,
): { readonly cost: number; readonly rows: readonly Fork[] } {
  if (fork.members.length === 1) return { cost: rowCost(fork, costs), rows: [] };
  const togetherCost = fitsScores(fork, heads) ? rowCost(fork, costs) : Number.POSITIVE_INFINITY;
  const cuts = fork.forks.map((each) => cheapestCut(each, batch, costs, heads));
  let apartCost = 0;
  for (const { cost } of cuts) apartCost += cost;
  for (const index of fork.members) {
    const { context, positions } = batch[index];
    if (context.length === fork.end) apartCost += rowCost({ tokens: positions.length, context: fork.end }, costs);
  }
  return togetherCost < apartCost
    ? { cost: togetherCost, rows: [fork] }
    : { cost: apartCost, rows: cuts.flatMap(({ rows }) => rows) };
}

function rowOfFork(fork: Fork, batch: readonly SequenceInput[]): Row {
  if (fork.forks.every(({ members }) => members.length === 1)) return rowOf(fork.members, batch, fork.end);
  const slots = new Uint32Array(fork.context);
  const members: RowMember[] = [];
  let context = 0;
  let tokens = 0;
  /** @param slotIndicesBefore indices, among the row's slots, of the context slots before the fork's own */
  const placeFork = ({ members: indices, end, forks }: Fork, slotIndicesBefore: readonly number[]): void => {
    const ownSlots = batch[indices[0]].context.subarray(slotIndicesBefore.length, end);
    slots.set(ownSlots, context);
    const slotIndices = [...slotIndicesBefore, ...Array.from(ownSlots, (_, i) => context + i)];
    context += ownSlots.length;
    for (const index of indices) {
      const sequence = batch[index];
      if (sequence.context.length > end) continue;
      members.push({ index, sequence, firstInput: tokens, firstOwn: 0, links: Int32Array.from(slotIndices) });
      tokens += sequence.positions.length;
    }
    for (const each of forks) placeFork(each, slotIndices);
  };
  placeFork(fork, []);
  return { members, tokens, context, shared: 0, slots, segments: [] };
}

/**
 * Puts linked sequences into one row, in the batch's order: later ones read slots that earlier ones write. The writer's input columns are the
 * reader's context columns. The run gathers every other slot once. No member's context may name a slot twice.
 */
export function linkedRow(batch: readonly SequenceInput[], indices: readonly number[]): Row {
  const linkOf = new Map<number, number>();
  const slots: number[] = [];
  let tokens = 0;
  const members = indices.map((index): RowMember => {
    const sequence = batch[index];
    const links = Int32Array.from(sequence.context, (slot) => {
      const knownLink = linkOf.get(slot);
      if (knownLink !== undefined) return knownLink;
      const link = slots.length;
      slots.push(slot);
      linkOf.set(slot, link);
      return link;
    });
    const firstInput = tokens;
    sequence.writes.forEach((slot, i) => {
      linkOf.set(slot, -1 - (firstInput + i));
    });
    tokens += sequence.positions.length;
    return { index, sequence, firstInput, firstOwn: 0, links };
  });
  return { members, tokens, context: slots.length, shared: 0, slots: Uint32Array.from(slots), segments: [] };
}

/** A decode step whose context begins with segments, in a row of its own. */
export function segmentedRow(batch: readonly SequenceInput[], index: number, segments: readonly number[]): Row {
  const { context, ...rest } = batch[index];
  const sequence = { ...rest, context: context.subarray(segments.length * SEGMENT_SLOTS) };
  const members = [{ index, sequence, firstInput: 0, firstOwn: sequence.context.length, links: null }];
  const { length } = sequence.context;
  return { members, tokens: 1, context: length, shared: length, slots: null, segments };
}

/** Puts causal sequences into one row; the mask hides them from each other. */
export function jointRow(indices: readonly number[], batch: readonly SequenceInput[]): Row {
  return rowOf(indices, batch, 0);
}

function rowOf(indices: readonly number[], batch: readonly SequenceInput[], shared: number): Row {
  let tokens = 0;
  let context = shared;
  const members = indices.map((index): RowMember => {
    const sequence = batch[index];
    const member = { index, sequence, firstInput: tokens, firstOwn: context, links: null };
    tokens += sequence.positions.length;
    context += sequence.context.length - shared;
    return member;
  });
  return { members, tokens, context, shared, slots: null, segments: [] };
}

function commonPrefix(group: readonly number[], from: number, batch: readonly SequenceInput[]): number {
  const firstContext = batch[group[0]].context;
  let length = firstContext.length;
  for (const index of group) {
    const { context } = batch[index];
    let sameLength = from;
    const end = Math.min(length, context.length);
    while (sameLength < end && context[sameLength] === firstContext[sameLength]) sameLength++;
    length = sameLength;
  }
  return length;
}

/**
 * Measures the share of all runs' estimated work that is padding: rows filled up to the run's shape, scores between different sequences in one
 * row, and segments that no row of the run uses.
 */
export class PaddingMeter {
  readonly #costs: RunCosts;
  #computedCost = 0;
  #wantedCost = 0;
  /** Values of `#computedCost` and `#wantedCost` when the last batch began. */
  #costsBefore = { computed: 0, wanted: 0 };

  constructor(costs: RunCosts) {
    this.#costs = costs;
  }

  begin(): void {
    this.#costsBefore = { computed: this.#computedCost, wanted: this.#wantedCost };
  }

  /** @param segments number of segments that the run reads */
  add(rows: readonly Row[], { tokens, width }: RunShape, segments = 0): void {
    this.#computedCost += rows.length * rowCost({ tokens, context: width - tokens }, this.#costs);
    this.#computedCost += segments * this.#costs.perSegment;
    for (const row of rows) this.#wantedCost += this.#wantedCostOf(row);
  }

  share(): number {
    return this.#computedCost === 0 ? 0 : 1 - this.#wantedCost / this.#computedCost;
  }

  /** Padding share of the batch that began last. */
  batchShare(): number {
    const computed = this.#computedCost - this.#costsBefore.computed;
    return computed === 0 ? 0 : 1 - (this.#wantedCost - this.#costsBefore.wanted) / computed;
  }

  #wantedCostOf(row: Row): number {
    let unrelatedPairs = row.tokens * (row.tokens + row.context);
    for (const { sequence } of row.members) {
      const inputs = sequence.positions.length;
      unrelatedPairs -= inputs * (inputs + sequence.context.length);
    }
    const segments = row.segments.length * this.#costs.perSegment;
    return rowCost(row, this.#costs) - unrelatedPairs * this.#costs.perScore + segments;
  }
}
