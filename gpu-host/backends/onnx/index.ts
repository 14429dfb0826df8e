import { InferenceSession, Tensor } from 'onnxruntime-node';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Backend, SequenceInput, SequenceOutput, TopTokens } from '../backend.ts';
import { checkCopy, checkSequence, checkStates } from '../check.ts';
import { FeedBuilder, type RunFeeds } from './feeds.ts';
import { buildDecoder, buildHead, type GraphOptions } from './graph.ts';
import { KvPool } from './kv-pool.ts';
import { packRuns, type RunCosts, runCosts } from './packing.ts';
import { defaultCacheDirectory, quantizedWeights } from './quantized-cache.ts';
import { RotaryTable } from './rotary-table.ts';
import { type Row, separateRows, sharedRows } from './rows.ts';
import { sessionOptions } from './session-options.ts';
import type { QuantizedRanges, WeightBits } from './weights.ts';

/** Options of {@link createOnnxBackend}. */
export interface OnnxBackendOptions {
  readonly pageSize: number;
  readonly pageCount: number;
  /** Width of the decoder's weights. */
  readonly bits: WeightBits;
  /** Width of the head's weights; `bits` by default. With 32-bit weights a head of 8 is nearly free of error and 1.1 to 1.8 times faster. */
  readonly headBits?: WeightBits;
  /**
   * Threads of the session; by default one per core, chosen by ONNX Runtime. They wait for each other several times a layer: where other
   * processes keep the cores busy, one thread fewer is faster (two threads on two busy cores took twice as long as one).
   */
  readonly threads?: number;
  /** Where quantised weights are kept between starts; `$XDG_CACHE_HOME/pie/quantized` by default. */
  readonly cacheDirectory?: string;
}

/**
 * A model on the CPU through ONNX Runtime. The graph is built here from the config; float weights are mapped from the model's own
 * files, quantised ones from a cache that is written once per model.
 *
 * `session.run` holds the thread: call it from a process that can wait.
 */
export async function createOnnxBackend(model: LoadedModel, options: OnnxBackendOptions): Promise<Backend> {
  const { bits, headBits = bits } = options;
  const pool = new KvPool(model.config, options.pageSize * options.pageCount);
  const quantized = await quantizedWeights(model, bits, headBits, options.cacheDirectory ?? defaultCacheDirectory());
  const graphOptions = { bits, headBits, slotCount: pool.slotCount };
  const graph = buildDecoder(model, graphOptions, quantized);
  const decoder = await InferenceSession.create(graph, sessionOptions(options.threads));
  return new OnnxBackend(model, options, pool, decoder, graphOptions, quantized);
}

class OnnxBackend implements Backend {
  readonly name = 'onnx';
  readonly config: ModelConfig;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly #pool: KvPool;
  readonly #feeds: FeedBuilder;
  readonly #costs: RunCosts;
  readonly #decoder: InferenceSession;
  readonly #makeHead: () => Promise<InferenceSession>;
  #head: Promise<InferenceSession> | null = null;

  constructor(
    model: LoadedModel,
    options: OnnxBackendOptions,
    pool: KvPool,
    decoder: InferenceSession,
    graphOptions: GraphOptions,
    quantized: ReadonlyMap<string, QuantizedRanges>,
  ) {
    this.config = model.config;
    this.pageSize = options.pageSize;
    this.pageCount = options.pageCount;
    this.#pool = pool;
    this.#feeds = new FeedBuilder(model.config, pool, new RotaryTable(model.config));
    this.#costs = runCosts(model.config, graphOptions.bits, graphOptions.headBits);
    this.#decoder = decoder;
    this.#makeHead = () =>
      InferenceSession.create(buildHead(model, graphOptions, quantized), sessionOptions(options.threads));
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    for (const sequence of batch) checkSequence(this.config, this.#pool.nullSlot, sequence);
    const outputs: SequenceOutput[] = new Array(batch.length);
    for (const rows of this.#plan(batch)) await this.#run(rows, outputs);
    return outputs;
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    const { hiddenSize, vocabularySize } = this.config;
    checkStates(this.config, states, count);
    const k = Math.min(topK, vocabularySize);
    if (count === 0) return { topK: k, tokens: new Uint32Array(0), logProbabilities: new Float32Array(0) };
    // The decoder's own head cannot run alone; one of its own is made when first wanted, at the price of a second copy of its weights.
    this.#head ??= this.#makeHead();
    const head = await this.#head;
    const result = await head.run({
      states: new Tensor('float32', states, [count, hiddenSize]),
      top_k: new Tensor('int64', BigInt64Array.of(BigInt(k)), [1]),
    });
    return topRows(result, 0, count, k, k, true);
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array): void {
    checkCopy(this.#pool.nullSlot, sources, destinations);
    this.#pool.copy(sources, destinations);
  }

  async dispose(): Promise<void> {
    await this.#decoder.release();
    if (this.#head !== null) await (await this.#head).release();
  }

  /** The batch as runs of rows: forks of a prefix share a row when that is cheaper than padding them beside each other. */
  #plan(batch: readonly SequenceInput[]): Row[][] {
    const { heads } = this.config;
    let rows = separateRows(batch);
    let packing = packRuns(rows, this.#costs, heads);
    const shared = sharedRows(batch, this.#costs);
    if (shared !== null) {
      const other = packRuns(shared, this.#costs, heads);
      if (other.cost < packing.cost) [rows, packing] = [shared, other];
    }
    return packing.runs.map((run) => run.map((index) => rows[index]));
  }

  async #run(rows: readonly Row[], outputs: SequenceOutput[]): Promise<void> {
    const run = this.#feeds.build(rows);
    const result = await this.#decoder.run(run.feeds, fetches(run, rows));
    const fresh = result.new_kv === undefined ? null : floats(result.new_kv);
    let topRow = 0;
    let stateRow = run.headRows;
    for (let r = 0; r < rows.length; r++) {
      for (const { index, sequence, firstInput } of rows[r].members) {
        const { output, writes } = sequence;
        if (fresh !== null) this.#pool.store(fresh, rows.length * run.tokens, r * run.tokens + firstInput, writes);
        if (output.kind === 'none') outputs[index] = { kind: 'none' };
        else if (output.kind === 'states') {
          outputs[index] = { kind: 'states', states: this.#statesOf(result, stateRow, output.rows) };
          stateRow += output.rows;
        } else {
          const k = Math.min(output.topK, run.topK);
          const top = topRows(result, topRow, output.rows, run.topK, k, output.tokensOnly !== true);
          outputs[index] = { kind: 'top', ...top };
          topRow += output.rows;
        }
      }
    }
  }

  #statesOf(result: InferenceSession.ReturnType, firstRow: number, rows: number): Float32Array {
    const { hiddenSize } = this.config;
    return floats(result.states).slice(firstRow * hiddenSize, (firstRow + rows) * hiddenSize);
  }
}

/** Outputs are copied into JavaScript: only those that somebody wants. */
function fetches(run: RunFeeds, rows: readonly Row[]): string[] {
  const names: string[] = [];
  if (rows.some(({ members }) => members.some(({ sequence }) => sequence.writes.length > 0))) names.push('new_kv');
  if (run.headRows > 0) names.push('top_tokens');
  if (run.wantsLogSum) names.push('top_logits', 'log_sum');
  if (run.stateRows > 0 || names.length === 0) names.push('states');
  return names;
}

/** The first `k` of `width` columns of some rows, with logits made log-probabilities. */
function topRows(
  result: InferenceSession.ReturnType,
  firstRow: number,
  rows: number,
  width: number,
  k: number,
  wantsProbabilities: boolean,
): TopTokens {
  const ids = integers(result.top_tokens);
  const tokens = new Uint32Array(rows * k);
  for (let row = 0; row < rows; row++) {
    const from = (firstRow + row) * width;
    // Low words of little-endian int64.
    for (let i = 0; i < k; i++) tokens[row * k + i] = ids[(from + i) * 2];
  }
  if (!wantsProbabilities) return { topK: k, tokens, logProbabilities: new Float32Array(0) };
  const logits = floats(result.top_logits);
  const logSums = floats(result.log_sum);
  const logProbabilities = new Float32Array(rows * k);
  for (let row = 0; row < rows; row++) {
    const from = (firstRow + row) * width;
    const logSum = logSums[firstRow + row];
    for (let i = 0; i < k; i++) logProbabilities[row * k + i] = logits[from + i] - logSum;
  }
  return { topK: k, tokens, logProbabilities };
}

function floats(tensor: Tensor | undefined): Float32Array {
  if (!(tensor?.data instanceof Float32Array)) throw new TypeError('The session gave no float32 output.');
  return tensor.data;
}

/** The words of an int64 output: even ones are the low halves. */
function integers(tensor: Tensor | undefined): Uint32Array {
  if (!(tensor?.data instanceof BigInt64Array)) throw new TypeError('The session gave no int64 output.');
  const { buffer, byteOffset, length } = tensor.data;
  return new Uint32Array(buffer, byteOffset, length * 2);
}
