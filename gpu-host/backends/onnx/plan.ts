import type { SequenceInput } from '../backend.ts';
import { fitsScores, type Packing, packRuns, type RowShape, type RunCosts, rowCost } from './packing.ts';
import { jointRow, linkedRow, type Row, segmentedRow, separateRows, sharedRows } from './rows.ts';
import type { RunBounds } from './run-bounds.ts';
import type { FoundSegments } from './segments.ts';

interface PackedRows {
  readonly runs: readonly (readonly Row[])[];
  /** Estimated nanoseconds of all runs. */
  readonly cost: number;
}

/** Groups a batch's sequences into rows and its rows into runs, and orders the runs. */
export class Planner {
  readonly #costs: RunCosts;
  readonly #heads: number;
  readonly #dependencies: DependencyFinder;
  readonly #bounds: RunBounds | undefined;

  /** @param bounds of each run; none by default */
  constructor(costs: RunCosts, heads: number, slotCount: number, bounds?: RunBounds) {
    this.#costs = costs;
    this.#heads = heads;
    this.#dependencies = new DependencyFinder(slotCount);
    this.#bounds = bounds;
  }

  /**
   * Returns runs in order: the backend stores the keys and values of one run before the next begins. At most one run reads segments. None does
   * when a sequence reads what an earlier one of the batch writes, because segments lack these slots.
   * @param foundSegments segments that hold the beginnings of contexts
   */
  plan(batch: readonly SequenceInput[], foundSegments: FoundSegments | null = null): readonly (readonly Row[])[] {
    const runs = this.#cheapest(batch, foundSegments);
    return this.#bounds === undefined ? runs : [...this.#bounds.split(batch, runs)];
  }

  #cheapest(batch: readonly SequenceInput[], foundSegments: FoundSegments | null): readonly (readonly Row[])[] {
    const dependencies = this.#dependencies.find(batch);
    if (dependencies === null) {
      const plain = this.#runs(batch, [...batch.keys()], []);
      const segmented = foundSegments === null ? null : this.#segmented(batch, foundSegments);
      return segmented !== null && segmented.cost < plain.cost ? segmented.runs : plain.runs;
    }
    const groups = planGroups(batch, dependencies, this.#costs, this.#heads);
    const stages = groups.reduce((last, { stage }) => Math.max(last, stage), 0) + 1;
    return Array.from({ length: stages }, (_, stage) => {
      const groupMembers = groups.filter((group) => group.stage === stage).map((group) => group.members);
      const linked = groupMembers.filter(({ length }) => length > 1).map((indices) => linkedRow(batch, indices));
      const unlinked = groupMembers.filter(({ length }) => length === 1).flat();
      return this.#runs(batch, unlinked, linked).runs;
    }).flat();
  }

  /** Plans one run for the steps with segments, or for all decode steps if that is cheaper; null when its scores would not fit. */
  #segmented(
    batch: readonly SequenceInput[],
    { bySequence: segmentsBySequence, count }: FoundSegments,
  ): PackedRows | null {
    const indices = [...batch.keys()];
    const segmentedRows = indices
      .filter((index) => segmentsBySequence[index].length > 0)
      .map((index) => segmentedRow(batch, index, segmentsBySequence[index]));
    const isStep = (index: number) => batch[index].positions.length === 1 && batch[index].attention !== true;
    const unsegmented = indices.filter((index) => segmentsBySequence[index].length === 0);
    const steps = unsegmented.filter(isStep);
    const candidates = [{ rows: segmentedRows, rest: unsegmented }];
    if (steps.length > 0) {
      const otherIndices = unsegmented.filter((index) => !isStep(index));
      candidates.push({ rows: [...segmentedRows, ...separateRows(batch, steps)], rest: otherIndices });
    }
    let bestPlan: PackedRows | null = null;
    for (const { rows, rest } of candidates) {
      const shape = { tokens: 1, context: rows.reduce((most, row) => Math.max(most, row.context), 0) };
      if (!fitsScores(shape, this.#heads, rows.length)) continue;
      const { perRun, perSegmentRun, perSegment } = this.#costs;
      const packed = rest.length === 0 ? { runs: [], cost: 0 } : this.#runs(batch, rest, []);
      const segmentedRunCost = perRun + perSegmentRun + count * perSegment + rows.length * rowCost(shape, this.#costs);
      const cost = segmentedRunCost + packed.cost;
      if (bestPlan === null || cost < bestPlan.cost) bestPlan = { runs: [rows, ...packed.runs], cost };
    }
    return bestPlan;
  }

  /** Puts forks of a prefix into one row, and deals unlike sequences into rows of about equal length, where this is cheaper. */
  #runs(batch: readonly SequenceInput[], indices: readonly number[], linked: readonly Row[]): PackedRows {
    let rows = [...separateRows(batch, indices), ...linked];
    let bestPacking = this.#pack(rows);
    const sharedPrefixRows = sharedRows(batch, indices, this.#costs, this.#heads);
    if (sharedPrefixRows !== null) {
      const mergedPacking = this.#pack([...sharedPrefixRows, ...linked]);
      if (mergedPacking.cost < bestPacking.cost) {
        rows = [...sharedPrefixRows, ...linked];
        bestPacking = mergedPacking;
      }
    }
    if (!isWorthDealing(rows, bestPacking.cost, this.#costs)) return bestPacking;
    const isMovableStep = (row: Row) => isMovable(row) && row.tokens === 1;
    const isMovablePrompt = (row: Row) => isMovable(row) && row.tokens > 1;
    for (const isOfKind of [isMovablePrompt, isMovableStep]) {
      const otherRows = rows.filter((row) => !isOfKind(row));
      for (const dealt of dealtRows(batch, rows.filter(isOfKind), this.#costs)) {
        const candidate = [...dealt, ...otherRows];
        const dealtPacking = this.#pack(candidate);
        if (dealtPacking.cost >= bestPacking.cost) continue;
        rows = candidate;
        bestPacking = dealtPacking;
      }
    }
    return bestPacking;
  }

  /** Packs the rows that want attention separately, because a run with attention returns a number for each input and column. */
  #pack(rows: readonly Row[]): PackedRows {
    const watchedRows = rows.filter(wantsAttention);
    if (watchedRows.length === 0 || watchedRows.length === rows.length) return this.#packTogether(rows);
    const parts = [this.#packTogether(watchedRows), this.#packTogether(rows.filter((row) => !wantsAttention(row)))];
    return { runs: parts.flatMap(({ runs }) => runs), cost: parts[0].cost + parts[1].cost };
  }

  #packTogether(rows: readonly Row[]): PackedRows {
    const packing: Packing = packRuns(rows, this.#costs, this.#heads);
    return { runs: packing.runs.map((run) => run.map((index) => rows[index])), cost: packing.cost };
  }
}

function wantsAttention({ members }: Row): boolean {
  return members.some(({ sequence }) => sequence.attention === true);
}

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
function isWorthDealing(rows: readonly RowShape[], cost: number, costs: RunCosts): boolean {
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
interface Group {
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
