import { kvSize, type ModelConfig } from '#gpu-host/models/config.ts';

/** Context slots of one segment. Only whole segments are read in place: with longer ones, more slots at the end of each context are gathered. */
export const SEGMENT_SLOTS = 32;

/** A run's padded shape: `tokens` inputs per row over `width` columns. The columns hold the row's own inputs, its context, then padding. */
export interface RunShape {
  readonly tokens: number;
  readonly width: number;
  /** True when the last column is kept for inputs that see nothing: see `hasBlindInput`. */
  readonly blind: boolean;
}

/** The sizes of a row (the inputs of one sequence or of several, see `rows.ts`) that decide which run it joins. */
export interface RowShape {
  /** Inputs. */
  readonly tokens: number;
  /** Context slots. */
  readonly context: number;
}

/** Estimated nanoseconds for each part of a run's work. Only their proportions matter: they decide when padding costs more than a further run. */
export interface RunCosts {
  /** For each run: it reads all weights from memory once. */
  readonly perRun: number;
  /** For each token, padding included. */
  readonly perToken: number;
  /** For each column of a row, padding included: a context slot or an input that the row's inputs may attend to. The run gathers it once. */
  readonly perColumn: number;
  /** Added for each such column of a row with several inputs: the multiplication then packs the keys and values first. */
  readonly perPackedColumn: number;
  /** For each pair of a token and a column of its row, padding included. */
  readonly perScore: number;
  /** Added for a run that reads segments (`KvSegments`). */
  readonly perSegmentRun: number;
  /** Added to such a run for each segment in memory. */
  readonly perSegment: number;
}

/** This rate and the next ones were fitted to runs of 1 to 128 rows on two AVX-512 cores. Their proportions differ little on other CPUs. */
const GATHER_BYTES_PER_NS = 60;
/** Below the rate of the memory, to make each further run cost more: the smaller multiplications of a split batch are also less efficient. */
const WEIGHT_BYTES_PER_NS = 40;
const FLOPS_PER_NS = 250;
const ATTENTION_FLOPS_PER_NS = 310;
/** Fixed cost of a layer's nodes, at any size. */
const LAYER_NS = 15_000;
/** The gather reads each row of keys or values and writes it in order; the attention reads it again. */
const GATHER_PASSES = 3;
/** Fixed cost of a layer's nodes that join the attention over segments to the attention over gathered columns. */
const SEGMENT_LAYER_NS = 40_000;
/** Maximum scores of a run in one layer: 512 MiB, 4 bytes each. A batch is split into runs to stay below; a run of a single row may exceed it. */
const MAX_SCORES = 1 << 27;

/** Costs of a model whose decoder weights have `bits` bits and whose head weights have `headBits`. */
export function runCosts(config: ModelConfig, bits: number, headBits: number): RunCosts {
  const { hiddenSize, intermediateSize, heads, headDim, layers, vocabularySize } = config;
  const kv = kvSize(config);
  const parameters = layers * hiddenSize * (2 * heads * headDim + 2 * kv + 3 * intermediateSize);
  return {
    perRun: layers * LAYER_NS + (parameters * bits + hiddenSize * vocabularySize * headBits) / 8 / WEIGHT_BYTES_PER_NS,
    perToken: (2 * parameters) / FLOPS_PER_NS,
    perSegmentRun: layers * SEGMENT_LAYER_NS,
    // The attention reads a segment in place, without a gather.
    perSegment: (SEGMENT_SLOTS * layers * 2 * kv * 4) / GATHER_BYTES_PER_NS,
    perColumn: (layers * 2 * kv * 4 * GATHER_PASSES) / GATHER_BYTES_PER_NS,
    perPackedColumn: (layers * 2 * kv * 4) / GATHER_BYTES_PER_NS,
    perScore: (layers * heads * headDim * 4) / ATTENTION_FLOPS_PER_NS,
  };
}

/** Estimated nanoseconds of a row in a run of its shape, without the fixed cost of the run. */
export function rowCost({ tokens, context }: RowShape, costs: RunCosts): number {
  const width = context + tokens;
  const perColumn = costs.perColumn + (tokens > 1 ? costs.perPackedColumn : 0);
  return tokens * costs.perToken + width * perColumn + tokens * width * costs.perScore;
}

/** True when one run may hold the scores of `rows` rows of this shape. */
export function fitsScores({ tokens, context }: RowShape, heads: number, rows = 1): boolean {
  return rows * tokens * (context + tokens) * heads <= MAX_SCORES;
}

export interface Packing {
  /** Indices of each run's rows. */
  readonly runs: readonly (readonly number[])[];
  /** Estimated nanoseconds of all runs. */
  readonly cost: number;
}

/**
 * Splits a batch into runs, each padded to its longest row, so that the estimated total time is least. A further run reads all weights again, so
 * rows of unlike shapes (decode steps and prefills, short and long contexts) get separate runs only where their padding would cost more than this.
 */
export function packRuns(shapes: readonly RowShape[], costs: RunCosts, heads: number): Packing {
  if (shapes.length === 0) return { runs: [], cost: 0 };
  const indices = Array.from(shapes.keys());
  let tokens = 0;
  let context = 0;
  let unpaddedCost = costs.perRun;
  for (const shape of shapes) {
    tokens = Math.max(tokens, shape.tokens);
    context = Math.max(context, shape.context);
    unpaddedCost += rowCost(shape, costs);
  }
  const fits = fitsScores({ tokens, context }, heads, shapes.length);
  const cost = costs.perRun + shapes.length * rowCost({ tokens, context }, costs);
  // The usual case: a split would save at most the padding, and costs a further run.
  if (fits && cost - unpaddedCost <= costs.perRun) return { runs: [indices], cost };
  return cheapestRuns(shapes, indices.sort(byShape(shapes)), costs, heads);
}

function byShape(shapes: readonly RowShape[]): (a: number, b: number) => number {
  return (a, b) => shapes[a].tokens - shapes[b].tokens || shapes[a].context - shapes[b].context || a - b;
}

/** Finds the best cuts of `order` by dynamic programming; sequences of similar shape are neighbours in `order`. */
function cheapestRuns(shapes: readonly RowShape[], order: readonly number[], costs: RunCosts, heads: number): Packing {
  const bestCost = [0];
  const cutBefore = [0];
  // Lower bound on the cost of the first rows of `order`, in any runs.
  const unpaddedCost = [0];
  for (let end = 1; end <= order.length; end++) {
    unpaddedCost[end] = unpaddedCost[end - 1] + rowCost(shapes[order[end - 1]], costs);
    bestCost[end] = Number.POSITIVE_INFINITY;
    let tokens = 0;
    let context = 0;
    for (let start = end - 1; start >= 0; start--) {
      tokens = Math.max(tokens, shapes[order[start]].tokens);
      context = Math.max(context, shapes[order[start]].context);
      const count = end - start;
      if (count > 1 && !fitsScores({ tokens, context }, heads, count)) break;
      const runCost = costs.perRun + count * rowCost({ tokens, context }, costs);
      if (bestCost[start] + runCost < bestCost[end]) {
        bestCost[end] = bestCost[start] + runCost;
        cutBefore[end] = start;
      }
      // The sum is a lower bound of the cost with a run from `start`. It does not fall for earlier starts, so none of these is cheaper.
      if (unpaddedCost[start] + runCost >= bestCost[end]) break;
    }
  }
  const runs: number[][] = [];
  for (let end = order.length; end > 0; end = cutBefore[end]) runs.unshift(order.slice(cutBefore[end], end));
  return { runs, cost: bestCost[order.length] };
}
