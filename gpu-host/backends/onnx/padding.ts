import type { RunShape } from './bias.ts';
import { type RunCosts, rowCost } from './packing.ts';
import type { Row } from './rows.ts';

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
