import type { SequenceInput } from '../backend.ts';
import { dealtRows, isMovable, isWorthDealing } from './balance.ts';
import { type Packing, packRuns, type RunCosts } from './packing.ts';
import { linkedRow, type Row, separateRows, sharedRows } from './rows.ts';
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

  constructor(costs: RunCosts, heads: number, slotCount: number) {
    this.#costs = costs;
    this.#heads = heads;
    this.#dependencies = new DependencyFinder(slotCount);
  }

  /** Returns runs in order: the backend stores the keys and values of one run before the next begins. */
  plan(batch: readonly SequenceInput[]): readonly (readonly Row[])[] {
    const dependencies = this.#dependencies.find(batch);
    if (dependencies === null) return this.#runs(batch, [...batch.keys()], []);
    const groups = planGroups(batch, dependencies, this.#costs, this.#heads);
    const stages = groups.reduce((last, { stage }) => Math.max(last, stage), 0) + 1;
    return Array.from({ length: stages }, (_, stage) => {
      const members = groups.filter((group) => group.stage === stage).map((group) => group.members);
      const linked = members.filter(({ length }) => length > 1).map((indices) => linkedRow(batch, indices));
      return this.#runs(batch, members.filter(({ length }) => length === 1).flat(), linked);
    }).flat();
  }

  /** Puts forks of a prefix into one row, and deals unlike sequences into even rows, where this is cheaper. */
  #runs(
    batch: readonly SequenceInput[],
    alone: readonly number[],
    linked: readonly Row[],
  ): readonly (readonly Row[])[] {
    let rows = [...separateRows(batch, alone), ...linked];
    let best = this.#pack(rows);
    const merged = sharedRows(batch, alone, this.#costs);
    if (merged !== null) {
      const shared = this.#pack([...merged, ...linked]);
      if (shared.cost < best.cost) {
        rows = [...merged, ...linked];
        best = shared;
      }
    }
    if (!isWorthDealing(rows, best.cost, this.#costs)) return best.runs;
    const steps = (row: Row) => isMovable(row) && row.tokens === 1;
    const prompts = (row: Row) => isMovable(row) && row.tokens > 1;
    for (const isDealt of [prompts, steps]) {
      const others = rows.filter((row) => !isDealt(row));
      for (const dealt of dealtRows(batch, rows.filter(isDealt), this.#costs)) {
        const candidate = [...dealt, ...others];
        const even = this.#pack(candidate);
        if (even.cost >= best.cost) continue;
        rows = candidate;
        best = even;
      }
    }
    return best.runs;
  }

  /** Packs rows whose attention is wanted apart from the others: their runs return a number for each input and column. */
  #pack(rows: readonly Row[]): PackedRows {
    const watched = rows.filter(wantsAttention);
    if (watched.length === 0 || watched.length === rows.length) return this.#packed(rows);
    const parts = [this.#packed(watched), this.#packed(rows.filter((row) => !wantsAttention(row)))];
    return { runs: parts.flatMap(({ runs }) => runs), cost: parts[0].cost + parts[1].cost };
  }

  #packed(rows: readonly Row[]): PackedRows {
    const packing: Packing = packRuns(rows, this.#costs, this.#heads);
    return { runs: packing.runs.map((run) => run.map((index) => rows[index])), cost: packing.cost };
  }
}

function wantsAttention({ members }: Row): boolean {
  return members.some(({ sequence }) => sequence.attention === true);
}
