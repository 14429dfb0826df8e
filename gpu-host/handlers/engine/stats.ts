import type { SequenceInput, StepEstimate } from '../../backends/backend.ts';
import { BATCH_WAIT_BOUNDS_MS } from '../../protocol/host.ts';
import { StepProfile } from '../../telemetry/step-profile.ts';
import { DeviceTime } from '../sharing/meter.ts';

/** Largest batch with its own entry in the histogram. */
const HISTOGRAM_SIZES = 256;

/** Counters of one model's device steps. */
export class StepStats {
  batches = 0;
  /** Number of batches that were handed over while the previous one was computed, or before their calls had come. */
  stepsAhead = 0;
  /** Rows of guessed steps that no call took. */
  vainGuesses = 0;
  sequences = 0;
  tokens = 0;
  decodeTokens = 0;
  /** Projections that were computed separately. */
  projections = 0;
  /** Projections that a forward's own step answered. */
  fusedProjections = 0;
  images = 0;
  /** Images that were not encoded, because their tenant had them encoded before. */
  imageHits = 0;
  readonly time = new DeviceTime();
  /** Times of steps since the start, unaffected by a reset. */
  readonly profile: StepProfile;
  forwardMs = 0;
  graceMs = 0;
  failedCalls = 0;
  batchSizes: number[] = [];
  /** Number of calls by the time that they waited for their batch; `BATCH_WAIT_BOUNDS_MS` separates the entries. */
  waitCounts: number[] = noWaits();
  /** Sum of these waits. */
  waitMs = 0;
  /** Part of `time` that was spent before the last reset. */
  #earlierNs = 0;

  readonly #estimate: StepEstimate | undefined;

  /** @param estimate of the steps' work, which the profile notes; by default that of inputs without context */
  constructor(profile = new StepProfile(), estimate?: StepEstimate) {
    this.profile = profile;
    this.#estimate = estimate;
  }

  /** Milliseconds that the device worked. */
  get deviceBusyMs(): number {
    return (this.time.spentNs - this.#earlierNs) / 1e6;
  }

  /** Counts one device step of `ms` milliseconds. The caller adds them to `time` separately. */
  step(sequences: readonly SequenceInput[], ms: number, isAhead: boolean): void {
    this.batches++;
    if (isAhead) this.stepsAhead++;
    this.sequences += sequences.length;
    this.forwardMs += ms;
    let inputs = 0;
    let work = 0;
    for (const { positions, context, output } of sequences) {
      inputs += positions.length;
      const shape = {
        inputs: positions.length,
        context: context.length,
        outputs: output.kind === 'top' ? output.rows : 0,
      };
      work += this.#estimate?.work(shape) ?? positions.length;
      if (positions.length === 1) this.decodeTokens++;
    }
    this.tokens += inputs;
    this.profile.note(sequences.length, inputs, ms, work);
    const bucket = Math.min(sequences.length, HISTOGRAM_SIZES);
    while (this.batchSizes.length <= bucket) this.batchSizes.push(0);
    this.batchSizes[bucket] = (this.batchSizes[bucket] ?? 0) + 1;
  }

  /** Counts a call that waited `ms` milliseconds for its batch. */
  waited(ms: number): void {
    let bucket = 0;
    while (bucket < BATCH_WAIT_BOUNDS_MS.length && ms > (BATCH_WAIT_BOUNDS_MS[bucket] as number)) bucket++;
    this.waitCounts[bucket] = (this.waitCounts[bucket] as number) + 1;
    this.waitMs += ms;
  }

  reset(): void {
    this.batches = 0;
    this.stepsAhead = 0;
    this.vainGuesses = 0;
    this.sequences = 0;
    this.tokens = 0;
    this.decodeTokens = 0;
    this.projections = 0;
    this.fusedProjections = 0;
    this.images = 0;
    this.imageHits = 0;
    this.#earlierNs = this.time.spentNs;
    this.forwardMs = 0;
    this.graceMs = 0;
    this.failedCalls = 0;
    this.batchSizes = [];
    this.waitCounts = noWaits();
    this.waitMs = 0;
  }
}

const noWaits = (): number[] => new Array<number>(BATCH_WAIT_BOUNDS_MS.length + 1).fill(0);
