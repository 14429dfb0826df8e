import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { expectedTensors, type LoadedModel, openWeights } from '#gpu-host/models/load.ts';
import { readThrough } from '#gpu-host/models/safetensors.ts';
import { convertPacked } from '#gpu-host/models/widen.ts';
import type {
  Backend,
  DeviceAdapter,
  SequenceInput,
  SequenceOutput,
  StateScores,
  TopRequest,
  TopTokens,
} from '../backend.ts';
import {
  batchAdapter,
  checkCopy,
  checkPage,
  checkPicked,
  checkScore,
  checkSequence,
  checkStates,
  TooLittleMemory,
} from '../check.ts';
import { ONNX_TRAITS, requireTraits } from '../traits.ts';
import { OnnxAdapter } from './adapter.ts';
import { FeedBuilder } from './feeds.ts';
import { buildDecoder } from './graph.ts';
import { buildHead, Head } from './head.ts';
import { KvPool } from './kv-pool.ts';
import { InferenceSession } from './library.ts';
import { fetches, floats, type RunResult, RunTops, receivedAttention } from './outputs.ts';
import { runCosts } from './packing.ts';
import { Planner } from './plan.ts';
import { PaddingMeter, type Row } from './rows.ts';
import { defaultStepBytes, RunBounds } from './run-bounds.ts';
import { KvSegments } from './segments.ts';
import { LazySession, sessionOptions } from './sessions.ts';
import { OnnxImageEncoder } from './vision.ts';
import {
  defaultCacheDirectory,
  headLinear,
  heldBits,
  type LinearLayer,
  modelLinears,
  quantizedWeights,
  sessionBytes,
  type WeightBits,
  weightRanges,
} from './weights.ts';

/** Options of {@link createOnnxBackend}. */
export interface OnnxBackendOptions {
  readonly pageSize: number;
  readonly pageCount: number;
  /** Width of the decoder's weights. Weights that the model's file has in narrower blocks keep the narrower width. */
  readonly bits: WeightBits;
  /** Width of the head's weights; `bits` by default. With 32-bit weights, an 8-bit head is nearly exact and 1.1 to 1.8 times faster. */
  readonly headBits?: WeightBits;
  /**
   * Threads of the session; by default ONNX Runtime takes one per core. The threads wait for each other several times a layer: where other
   * processes keep the cores busy, one thread fewer is faster (two threads on two busy cores took twice as long as one).
   */
  readonly threads?: number;
  /** True to create the decoder for adapters at start; otherwise the backend creates it when the first adapter loads. */
  readonly adapters?: boolean;
  /** Folder that keeps quantised weights between starts; `$XDG_CACHE_HOME/pie/quantized` by default. */
  readonly cacheDirectory?: string;
  /** Takes lines about the progress of the start. */
  readonly report?: (line: string, level: 'info') => void;
  /** Maximum bytes of the temporary buffers of one run; `defaultStepBytes` of the memory that is free once the model is open by default. */
  readonly stepBytes?: number;
  /** Bytes that the process may still take; those of the machine, or of the process's control group, by default. */
  readonly freeBytes?: () => number;
}

/**
 * Runs a model on the CPU through ONNX Runtime. This function builds the graph from the config. It maps float weights from the model's own
 * files, and quantised weights from a cache that it writes once per model. The weights of a GGUF file are converted once, beside the file.
 *
 * `session.run` blocks the thread: use this backend in a process that can wait.
 */
export async function createOnnxBackend(loaded: LoadedModel, options: OnnxBackendOptions): Promise<OnnxBackend> {
  const { bits, headBits = bits, freeBytes = process.availableMemory } = options;
  requireTraits(loaded.config, 'onnx', ONNX_TRAITS);
  const model = await convertPacked(loaded, (line) => options.report?.(line, 'info'));
  const pool = new KvPool(model.config, options.pageSize, options.pageCount);
  const quantized = await quantizedWeights(model, bits, headBits, options.cacheDirectory ?? defaultCacheDirectory());
  const session = (graph: Uint8Array) =>
    openWeights(
      model.tensors,
      expectedTensors(model.config),
      () => InferenceSession.create(graph, sessionOptions(options.threads)),
      (created) => created.release(),
    );
  const decoder = (adapter: boolean) =>
    session(buildDecoder(model, { bits, headBits, slotCount: pool.slotCount, adapter }, quantized));
  const sessions = {
    decoder: await decoder(false),
    adaptedDecoder: new LazySession(async () => {
      checkRoom(model, modelLinears(model.config, bits, headBits), 'adapters', freeBytes());
      return decoder(true);
    }),
    head: new LazySession(async () => {
      const head = headLinear(model.config, headBits);
      checkRoom(model, [head], 'projections and scores of states', freeBytes());
      // The creation blocks the thread while it widens and packs the weights, so it should not wait for the disk, too.
      for (const range of weightRanges(model.tensors, head, quantized)) await readThrough(range);
      return session(buildHead(model, headBits, quantized));
    }),
  };
  try {
    // Creating this session blocks the thread for long, so create it at the start and not while other calls compute.
    if (options.adapters) await sessions.adaptedDecoder.get();
    return new OnnxBackend(model, options, pool, sessions, await OnnxImageEncoder.open(model, options.threads));
  } catch (error) {
    await release(sessions);
    throw error;
  }
}

const MIB = 1024 * 1024;
const NOTHING_LISTED = { tokens: new Uint32Array(0), logProbabilities: new Float32Array(0) };

/** Refuses a further session of these multiplications that does not fit the memory. @throws TooLittleMemory */
function checkRoom(model: LoadedModel, linears: readonly LinearLayer[], purpose: string, freeBytes: number): void {
  const bytes = linears.reduce((sum, linear) => sum + sessionBytes(model.tensors, linear), 0);
  if (bytes <= freeBytes) return;
  throw new TooLittleMemory(
    `${purpose} need a further copy of weights of up to ${Math.ceil(bytes / MIB)} MiB, and ${Math.floor(freeBytes / MIB)} MiB are free: give the GPU host more memory, or lower "bits" or "head_bits"`,
  );
}

async function release(sessions: Sessions): Promise<void> {
  for (const session of Object.values(sessions)) await session.release();
}

/** Sessions of one model. Each lazy session, once created, keeps a further copy of its weights. */
interface Sessions {
  readonly decoder: InferenceSession;
  /** The decoder that takes an adapter's matrices. */
  readonly adaptedDecoder: LazySession;
  /** The head alone, for states that were computed earlier. */
  readonly head: LazySession;
}

export class OnnxBackend implements Backend {
  readonly name = 'onnx';
  readonly precision: string;
  readonly weightBits: number;
  readonly device = { name: 'CPU' };
  readonly config: ModelConfig;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly images: OnnxImageEncoder | undefined;
  readonly steps: RunBounds;
  readonly #model: LoadedModel;
  readonly #pool: KvPool;
  readonly #segments: KvSegments;
  #segmentRuns = 0;
  readonly #feeds: FeedBuilder;
  readonly #planner: Planner;
  readonly #sessions: Sessions;
  readonly #head: Head;
  readonly #padding: PaddingMeter;

  constructor(
    model: LoadedModel,
    options: OnnxBackendOptions,
    pool: KvPool,
    sessions: Sessions,
    images: OnnxImageEncoder | undefined,
  ) {
    const { config } = model;
    const { bits, headBits = bits } = options;
    const weightWidths = modelLinears(config, bits, headBits).map((linear) => heldBits(model.tensors, linear));
    // The head is the last multiplication. The others are the layers'.
    const headWidth = weightWidths.pop() ?? headBits;
    this.weightBits = weightWidths.toSorted((a, b) => a - b)[weightWidths.length >> 1] ?? bits;
    this.precision = [...new Set(weightWidths)]
      .map((width) => (width === 32 ? 'float32' : `int${width}`))
      .join(' and ');
    this.#model = model;
    this.images = images;
    this.config = config;
    this.pageSize = options.pageSize;
    this.pageCount = options.pageCount;
    this.#pool = pool;
    const costs = runCosts(
      config,
      weightWidths.reduce((sum, width) => sum + width, 0) / weightWidths.length,
      headWidth,
    );
    this.#segments = new KvSegments(config, pool, costs);
    this.#feeds = new FeedBuilder(config, pool, this.#segments);
    const { freeBytes = process.availableMemory } = options;
    this.steps = new RunBounds(config, costs, options.stepBytes ?? defaultStepBytes(freeBytes()));
    this.#planner = new Planner(costs, config.heads, pool.nullSlot, this.steps);
    this.#padding = new PaddingMeter(costs);
    this.#sessions = sessions;
    this.#head = new Head(config, sessions.head);
  }

  /** Runs since start that read segments instead of gathering whole contexts. */
  get segmentRuns(): number {
    return this.#segmentRuns;
  }

  get pageBytes(): number {
    return this.#pool.pageBytes;
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    for (const sequence of batch) checkSequence(this.config, this.#pool.nullSlot, sequence);
    checkPicked(batch, 0);
    const adapter = OnnxAdapter.of(batchAdapter(batch));
    this.#padding.begin();
    const outputs: SequenceOutput[] = new Array(batch.length);
    // A sequence may read keys that an earlier one of the batch writes.
    for (const { writes, positions } of batch) this.#pool.positions.write(writes, positions);
    const foundSegments = this.#segments.find(batch);
    const runs = this.#planner.plan(batch, foundSegments);
    for (const rows of runs) await this.#run(rows, adapter, outputs);
    this.#segments.learn(batch, foundSegments, runs);
    return outputs;
  }

  async loadAdapter(adapter: LoadedAdapter): Promise<DeviceAdapter> {
    await this.#sessions.adaptedDecoder.get();
    return OnnxAdapter.read(adapter, this.#model);
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    checkStates(this.config, states, count);
    return this.#head.project(states, count, topK);
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    checkScore(this.config, states, count, tokens);
    return this.#head.score(states, count, tokens);
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    checkCopy(this.#pool.nullSlot, sources, destinations, shifts);
    this.#pool.copy(sources, destinations, shifts);
  }

  readPage(page: number, into: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, into);
    this.#pool.readPage(page, into);
  }

  writePage(page: number, from: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, from);
    this.#pool.writePage(page, from);
  }

  paddingShare(): number {
    return this.#padding.share();
  }

  batchPadding(): number {
    return this.#padding.batchShare();
  }

  async dispose(): Promise<void> {
    await release(this.#sessions);
    await this.images?.release();
  }

  async #run(rows: readonly Row[], adapter: OnnxAdapter | undefined, outputs: SequenceOutput[]): Promise<void> {
    const run = this.#feeds.build(rows);
    const { shape } = run;
    const { decoder, adaptedDecoder } = this.#sessions;
    const session = adapter ? await adaptedDecoder.get() : decoder;
    const feeds = adapter ? { ...run.feeds, ...adapter.feeds } : run.feeds;
    const result = await session.run(feeds, fetches(run));
    if (run.segments > 0) this.#segmentRuns++;
    const newKv = run.writes ? floats(result.new_kv) : null;
    let tops: RunTops | undefined;
    let topRow = 0;
    let stateRow = run.headRows;
    rows.forEach((row, r) => {
      for (const member of row.members) {
        const { output, writes, attention } = member.sequence;
        const firstInput = r * shape.tokens + member.firstInput;
        if (newKv !== null) this.#pool.store(newKv, rows.length * shape.tokens, firstInput, writes);
        let sequenceOutput: SequenceOutput;
        if (output.kind === 'none') sequenceOutput = { kind: 'none' };
        else if (output.kind === 'states') {
          sequenceOutput = { kind: 'states', states: this.#statesOf(result, stateRow, output.rows) };
          stateRow += output.rows;
        } else {
          tops ??= new RunTops(result, run, this.config.vocabularySize);
          sequenceOutput = this.#top(result, tops, topRow, output);
          topRow += output.rows;
        }
        if (attention === true) {
          sequenceOutput = { ...sequenceOutput, attention: receivedAttention(result, shape, r, row, member) };
        }
        outputs[member.index] = sequenceOutput;
      }
    });
    this.#padding.add(rows, shape, run.segments);
  }

  #top(result: RunResult, tops: RunTops, row: number, request: TopRequest): SequenceOutput {
    const { rows, tokensOnly, states, draws } = request;
    const topK = Math.min(request.topK, this.config.vocabularySize);
    const top = draws
      ? { ...NOTHING_LISTED, topK, drawn: Uint32Array.from(draws, (draw, i) => tops.draw(row + i, draw)) }
      : tops.tokens(row, rows, topK, tokensOnly !== true);
    if (states !== true) return { kind: 'top', ...top };
    return { kind: 'top', ...top, states: this.#statesOf(result, row, rows) };
  }

  #statesOf(result: RunResult, firstRow: number, rows: number): Float32Array {
    const { hiddenSize } = this.config;
    return floats(result.states).slice(firstRow * hiddenSize, (firstRow + rows) * hiddenSize);
  }
}
