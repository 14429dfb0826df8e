import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';
import type { SequenceInput, StepEstimate, StepShape } from '../backend.ts';
import { type RowShape, type RunCosts, rowCost } from './packing.ts';
import { type Row, separateRows } from './rows.ts';

/** Bytes of a float32. */
const FLOAT = 4;
/** Copies of a row's keys and of its values that one layer makes: the gathered ones, and those with the inputs' own. */
const GATHERED_COPIES = 4;
/** Copies of the scores: those that become weights in place, and a second one where attention is wanted. */
const SCORE_COPIES = 2;
/**
 * Copies of the logits: with a token mask, the terms, their cut, the masked and the changed logits and the powers of their sum come to the logits; if
 * all rows are open, their logits and powers, and the copies of both in JavaScript, come as well.
 */
const LOGIT_COPIES = 10;
/** Values of an input, in multiples of the hidden and of the intermediate size, that live at once in one layer. */
const HIDDEN_COPIES = 8;
const INTERMEDIATE_COPIES = 6;
/** Copies of the new keys and values of all layers: the layers' own, the joint output, and its copy in JavaScript. */
const NEW_KV_COPIES = 3;
/** Share of the memory that is free at the start, as a divisor, which a step may take by default. */
const FREE_SHARE = 4;
/** Bytes that a step may take by default on a machine with little free memory. */
const LEAST_BYTES = 256 * 1024 * 1024;
/**
 * Estimated time, ns, beyond which rows go to separate runs: the event loop turns between two runs. A processor that is ten times slower than the one
 * of the estimate stays within the minute after which the supervisor ends a GPU host.
 */
const LONGEST_NS = 5e9;

/** Default of `stepBytes`: a part of the memory that the process may still take. */
export function defaultStepBytes(freeBytes: number): number {
  return Math.max(LEAST_BYTES, Math.floor(freeBytes / FREE_SHARE));
}

/**
 * Bounds the temporary memory and the time of a run. The estimates of memory were compared with the growth of the process: 1.2 GB were measured for
 * 512 inputs over 16,384 slots with 32 heads, of which the scores are 1.1 GB, and 0.23 GB for one input over as many slots with 8 heads of keys.
 */
export class RunBounds implements StepEstimate {
  readonly maxBytes: number;
  readonly #config: ModelConfig;
  readonly #costs: RunCosts;

  constructor(config: ModelConfig, costs: RunCosts, maxBytes: number) {
    this.#config = config;
    this.#costs = costs;
    this.maxBytes = maxBytes;
  }

  bytes({ inputs, context, outputs }: StepShape): number {
    return this.#runBytes(1, { tokens: inputs, context }, outputs);
  }

  work({ inputs, context }: StepShape): number {
    return rowCost({ tokens: inputs, context }, this.#costs) / this.#costs.perToken;
  }

  /** Splits runs that exceed a bound, in order. A sequence that exceeds a bound alone has a run of its own. */
  *split(batch: readonly SequenceInput[], runs: readonly (readonly Row[])[]): Generator<readonly Row[]> {
    for (const run of runs) {
      if (this.#fits(run)) yield run;
      else yield* this.#parts(batch, run);
    }
  }

  *#parts(batch: readonly SequenceInput[], run: readonly Row[]): Generator<readonly Row[]> {
    let part: Row[] = [];
    for (const row of run) {
      const { members, segments } = row;
      if (members.length > 1 && !this.#fits([row])) {
        // Later members may read what earlier ones write, so each gets a run of its own, in the order of the batch.
        const indices = members.map(({ index }) => index).toSorted((a, b) => a - b);
        yield* separateRows(batch, indices).map((separate) => [separate]);
        continue;
      }
      const isLarge = part.length > 0 && !this.#fits([...part, row]);
      // Only one run of a batch may read segments: its other rows read whole contexts.
      if (isLarge && segments.length === 0) {
        yield part;
        part = [];
      }
      part.push(row);
    }
    if (part.length > 0) yield part;
  }

  #fits(rows: readonly Row[]): boolean {
    const shape = { tokens: 0, context: 0 };
    let outputs = 0;
    for (const { tokens, context, members } of rows) {
      shape.tokens = Math.max(shape.tokens, tokens);
      shape.context = Math.max(shape.context, context);
      for (const { sequence } of members) if (sequence.output.kind === 'top') outputs += sequence.output.rows;
    }
    if (rows.length * rowCost(shape, this.#costs) > LONGEST_NS && rows.length > 1) return false;
    return this.#runBytes(rows.length, shape, outputs) <= this.maxBytes;
  }

  #runBytes(rows: number, { tokens, context }: RowShape, outputs: number): number {
    const { heads, hiddenSize, intermediateSize, vocabularySize, layers } = this.#config;
    const width = context + tokens;
    const kv = kvSize(this.#config);
    const ofInput =
      HIDDEN_COPIES * hiddenSize + INTERMEDIATE_COPIES * intermediateSize + NEW_KV_COPIES * 2 * layers * kv;
    // The mask has a value for each score of one head.
    const ofRow = width * kv * GATHERED_COPIES + tokens * width * (heads * SCORE_COPIES + 1) + tokens * ofInput;
    return FLOAT * (rows * ofRow + outputs * vocabularySize * LOGIT_COPIES);
  }
}
