import type { SequenceInput } from '../backends/backend.ts';

/** Largest batch that has an entry of its own in the histogram. */
const HISTOGRAM_SIZES = 256;

/** Counters of one model's device steps. */
export class StepStats {
  batches = 0;
  sequences = 0;
  tokens = 0;
  decodeTokens = 0;
  /** Projections of states that were computed apart, */
  projections = 0;
  /** and those that a forward's own step answered. */
  fusedProjections = 0;
  /** Pictures encoded. */
  images = 0;
  deviceBusyMs = 0;
  forwardMs = 0;
  graceMs = 0;
  failedCalls = 0;
  batchSizes: number[] = [];

  step(sequences: readonly SequenceInput[], ms: number): void {
    this.batches++;
    this.sequences += sequences.length;
    this.deviceBusyMs += ms;
    this.forwardMs += ms;
    for (const { positions } of sequences) {
      this.tokens += positions.length;
      if (positions.length === 1) this.decodeTokens++;
    }
    const bucket = Math.min(sequences.length, HISTOGRAM_SIZES);
    while (this.batchSizes.length <= bucket) this.batchSizes.push(0);
    this.batchSizes[bucket] = (this.batchSizes[bucket] ?? 0) + 1;
  }

  projection(count: number, ms: number): void {
    this.projections += count;
    this.deviceBusyMs += ms;
  }

  /** Pictures that were encoded in one step. */
  encoding(count: number, ms: number): void {
    this.images += count;
    this.deviceBusyMs += ms;
  }

  reset(): void {
    this.batches = 0;
    this.sequences = 0;
    this.tokens = 0;
    this.decodeTokens = 0;
    this.projections = 0;
    this.fusedProjections = 0;
    this.images = 0;
    this.deviceBusyMs = 0;
    this.forwardMs = 0;
    this.graceMs = 0;
    this.failedCalls = 0;
    this.batchSizes = [];
  }
}
