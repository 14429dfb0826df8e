import type { SequenceInput } from '../backend.ts';
import { dealtRows, isMovable, isWorthDealing } from './balance.ts';
import { fitsScores, type Packing, packRuns, type RunCosts, rowCost } from './packing.ts';
import { linkedRow, type Row, segmentedRow, separateRows, sharedRows } from './rows.ts';
import type { RunBounds } from './run-bounds.ts';
import type { FoundSegments } from './segments.ts';
import { DependencyFinder, planGroups } from './stages.ts';

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
