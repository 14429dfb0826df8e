import { availableParallelism } from 'node:os';
import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Device } from '../../protocol/host.ts';
import type { Backend, DeviceAdapter, SequenceInput, SequenceOutput, StateScores, TopTokens } from '../backend.ts';
import { batchAdapter, checkCopy, checkPage, checkPicked, checkScore, checkSequence, checkStates } from '../check.ts';
import { OnnxImageEncoder } from '../onnx/vision.ts';
import { GgmlAdapter } from './adapter.ts';
import { paddedRows, StepPlan } from './batch.ts';
import { buildHead, buildStep, type GraphParts, type HeadGraph, type StepGraph } from './graph.ts';
import { type DeviceKind, Ggml, tooLittleMemory } from './library.ts';
import { answer, scoresOfRows, topOfRows } from './logits.ts';
import { KvPool, type KvType } from './pool.ts';
import { selfTest } from './self-test.ts';
import type { Pointer } from './signatures.ts';
import { ThreadCount } from './threads.ts';
import { loadWeights, type WeightBits } from './weights.ts';

/** Options of {@link createGgmlBackend}. */
export interface GgmlBackendOptions {
  readonly pageSize: number;
  readonly pageCount: number;
  /** Most bits of the layers' matrices: those with more become ggml's Q8_0 or Q4_0, others keep the type of the file. 32 keeps all. */
  readonly bits: WeightBits;
  /** Bits of the output head; `bits` by default. */
  readonly headBits?: WeightBits;
  /**
   * True, the default, to copy matrices whose products the CPU computes faster in another order of their blocks. False leaves them in the pages of
   * the model's file, which processes share and the system reads again when it needs the memory.
   */
  readonly repack?: boolean;
  /** Number format of keys and values; float32 by default. */
  readonly kv?: KvType;
  /** Where to compute; the CPU by default. */
  readonly device?: DeviceKind;
  /** Most threads that compute on the CPU; one for each core by default. Fewer compute while other programs keep the cores busy (`threads.ts`). */
  readonly threads?: number;
}

/** Maximum number of graphs kept, and of bytes of their values. The last graph is kept in any case. */
const MOST_GRAPHS = 64;
const MOST_GRAPH_BYTES = 512 * 1024 * 1024;
/**
 * Bytes that must be free on a GPU beside weights and pool. Vulkan's part of ggml takes memory of its own while it computes (halves of sums, converted
 * factors), and ends the process when it gets none.
 */
const GPU_WORKING_BYTES = 256 * 1024 * 1024;
/** States for which the head is computed at once. */
const HEAD_ROWS = 64;

/**
 * Runs a model through ggml, the tensor library of llama.cpp, on the CPU or on a GPU with a Vulkan driver. The libraries are prebuilt (see
 * `library.ts`); this folder builds the graphs over its own pool of keys and values. Steps are computed off the event loop.
 *
 * @throws ModelError `unsupported-model` when the libraries are not installed or compute wrongly, when a file of the weights was changed, or when
 * there is no such device, or it has too little memory or lacks an operation
 */
export async function createGgmlBackend(model: LoadedModel, options: GgmlBackendOptions): Promise<Backend> {
  const ggml = await Ggml.open();
  const device = ggml.device(options.device ?? 'cpu');
  await selfTest(ggml, device);
  const { config } = model;
  const { bits, headBits = bits, repack = true, kv = 'float32', threads = availableParallelism() } = options;
  await using made = new AsyncDisposableStack();
  const engine = ggml.engine(device);
  made.defer(() => ggml.functions.ggml_backend_free(engine));
  const weights = await loadWeights(ggml, device, model, { bits, headBits, repack, threads });
  made.defer(() => weights.dispose());
  const pool = new KvPool(ggml, device, config, options, kv);
  made.defer(() => pool.dispose());
  const parts = { ggml, config, weights, pool, device };
  if (!device.isCpu) checkGpu(parts);
  const images = await OnnxImageEncoder.open(model, options.threads);
  if (images) made.defer(() => images.release());
  return new GgmlBackend(parts, engine, options, images, made.move());
}

/** Builds graphs with all operations that a step can have, and makes sure that memory is left for them. @throws ModelError */
function checkGpu(parts: GraphParts): void {
  const { ggml, device } = parts;
  const group = { rows: 1, queries: 1, columns: 32 };
  for (const received of [false, true]) {
    const flags = { aligned: false, embeds: true, far: true, received };
    buildStep(parts, { inputs: 2, groups: [group, group], outputs: 1, logitRows: 1, ...flags }, undefined).dispose();
  }
  buildHead(parts, HEAD_ROWS).dispose();
  if (ggml.memory(device).freeBytes < GPU_WORKING_BYTES)
    throw tooLittleMemory(ggml, device, 'the values of steps', GPU_WORKING_BYTES);
}

class GgmlBackend implements Backend {
  readonly name = 'ggml';
  readonly precision: string;
  readonly weightBits: number;
  readonly kv: string | undefined;
  readonly device: Device;
  readonly config: ModelConfig;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly images: OnnxImageEncoder | undefined;
  readonly #parts: GraphParts;
  readonly #engine: Pointer;
  /** Frees everything that the backend was made from. */
  readonly #made: AsyncDisposableStack;
  readonly #steps: GraphCache<StepGraph>;
  readonly #heads: GraphCache<HeadGraph>;
  readonly #threads: ThreadCount;
  #setThreads = 0;
  #adapters = 0;

  constructor(
    parts: GraphParts,
    engine: Pointer,
    options: GgmlBackendOptions,
    images: OnnxImageEncoder | undefined,
    made: AsyncDisposableStack,
  ) {
    const { ggml, weights, pool, device } = parts;
    this.#parts = parts;
    this.#engine = engine;
    this.#made = made;
    this.config = parts.config;
    this.pageSize = options.pageSize;
    this.pageCount = options.pageCount;
    this.images = images;
    this.device = device.isCpu
      ? { name: device.name }
      : {
          name: device.description,
          memory: { takenBytes: weights.bytes + pool.bytes, totalBytes: ggml.memory(device).totalBytes },
        };
    const { bits, types } = weights;
    this.weightBits = bits.toSorted((a, b) => a - b)[bits.length >> 1] ?? options.bits;
    const names: Readonly<Record<string, string>> = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' };
    this.precision = [...new Set(types)].map((type) => names[type] ?? type.toLowerCase()).join(' and ');
    if (options.kv === 'float16') this.kv = options.kv;
    this.#threads = new ThreadCount(options.threads ?? availableParallelism());
    this.#steps = new GraphCache();
    this.#heads = new GraphCache();
  }

  get pageBytes(): number {
    return this.#parts.pool.pageBytes;
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    // ggml ends the process where an index is out of range, so everything is checked before.
    for (const sequence of batch) checkSequence(this.config, this.#slotCount, sequence);
    checkPicked(batch, 0);
    const adapter = GgmlAdapter.of(batchAdapter(batch));
    if (batch.length === 0) return [];
    const { ggml, pool } = this.#parts;
    const plan = new StepPlan(batch, pool, this.config);
    const graph = this.#steps.get(`${adapter?.id ?? ''} ${JSON.stringify(plan.shape)}`, () =>
      buildStep(this.#parts, plan.shape, adapter),
    );
    plan.feed(ggml, graph);
    await this.#compute(graph.graph);
    return this.#results(plan, graph);
  }

  async loadAdapter(adapter: LoadedAdapter): Promise<DeviceAdapter> {
    const id = ++this.#adapters;
    const { ggml, device } = this.#parts;
    return GgmlAdapter.read(ggml, device, adapter, this.config.layers, id, () =>
      this.#steps.drop((key) => key.startsWith(`${id} `)),
    );
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    checkStates(this.config, states, count);
    const { vocabularySize } = this.config;
    const k = Math.min(topK, vocabularySize);
    const tokens = new Uint32Array(count * k);
    const logProbabilities = new Float32Array(count * k);
    await this.#forEachHead(states, count, (logits, first, rows) => {
      const top = topOfRows(logits, rows, k, vocabularySize);
      tokens.set(top.tokens, first * k);
      logProbabilities.set(top.logProbabilities, first * k);
    });
    return { topK: k, tokens, logProbabilities };
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    checkScore(this.config, states, count, tokens);
    const logProbabilities: Float32Array[] = [];
    const entropies = new Float32Array(count);
    await this.#forEachHead(states, count, (logits, first, rows) => {
      const scores = scoresOfRows(logits, this.config.vocabularySize, tokens.slice(first, first + rows));
      logProbabilities.push(...scores.logProbabilities);
      entropies.set(scores.entropies, first);
    });
    return { logProbabilities, entropies };
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    checkCopy(this.#slotCount, sources, destinations, shifts);
    this.#parts.pool.copy(sources, destinations, shifts);
  }

  readPage(page: number, into: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, into);
    this.#parts.pool.readPage(page, into);
  }

  writePage(page: number, from: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, from);
    this.#parts.pool.writePage(page, from);
  }

  async dispose(): Promise<void> {
    const everything = () => true;
    this.#steps.drop(everything);
    this.#heads.drop(everything);
    await this.#made.disposeAsync();
  }

  get #slotCount(): number {
    return this.pageSize * this.pageCount;
  }

  async #compute(graph: Pointer): Promise<void> {
    const { ggml, device } = this.#parts;
    const { count } = this.#threads;
    if (device.isCpu && count !== this.#setThreads) ggml.setThreads(this.#engine, device, count);
    this.#setThreads = count;
    const startedMs = performance.now();
    const before = process.cpuUsage();
    await ggml.compute(this.#engine, graph);
    const { user, system } = process.cpuUsage(before);
    this.#threads.note(performance.now() - startedMs, (user + system) / 1000);
  }

  #results(plan: StepPlan, graph: StepGraph): SequenceOutput[] {
    const { hiddenSize, vocabularySize, layers, heads } = this.config;
    const { outputs, logitRows, groups } = plan.shape;
    const states = this.#read(graph.states, outputs * hiddenSize);
    const logits = this.#read(graph.logits, logitRows * vocabularySize);
    const received = graph.groups.map((tensors, g) => {
      const { rows = 0, columns = 0 } = groups[g] ?? {};
      return this.#read(tensors.received, rows * columns);
    });
    return plan.members.map(({ sequence, group, row, firstOutput }): SequenceOutput => {
      const { output, attention } = sequence;
      const end = firstOutput + (output.kind === 'none' ? 0 : output.rows);
      const ownStates = () => states.slice(firstOutput * hiddenSize, end * hiddenSize);
      let extra: { readonly attention?: Float32Array } = {};
      if (attention === true) {
        const start = row * (groups[group]?.columns ?? 0);
        const width = sequence.context.length + sequence.positions.length;
        const sums = received[group]?.subarray(start, start + width) ?? new Float32Array(0);
        extra = { attention: sums.map((sum) => sum / (layers * heads)) };
      }
      if (output.kind === 'none') return { kind: 'none', ...extra };
      if (output.kind === 'states') return { kind: 'states', states: ownStates(), ...extra };
      const own = logits.subarray(firstOutput * vocabularySize, end * vocabularySize);
      const top = answer(output, own, vocabularySize);
      return { kind: 'top', ...top, ...(output.states ? { states: ownStates() } : {}), ...extra };
    });
  }

  /** Computes the logits of states, some at a time. */
  async #forEachHead(
    states: Float32Array,
    count: number,
    visit: (logits: Float32Array, first: number, rows: number) => void,
  ): Promise<void> {
    const { hiddenSize, vocabularySize } = this.config;
    const { ggml } = this.#parts;
    for (let first = 0; first < count; first += HEAD_ROWS) {
      const rows = Math.min(HEAD_ROWS, count - first);
      const padded = paddedRows(rows);
      const graph = this.#heads.get(String(padded), () => buildHead(this.#parts, padded));
      const input = new Float32Array(padded * hiddenSize);
      input.set(states.subarray(first * hiddenSize, (first + rows) * hiddenSize));
      ggml.functions.ggml_backend_tensor_set(graph.states, input, 0, input.byteLength);
      await this.#compute(graph.graph);
      visit(this.#read(graph.logits, rows * vocabularySize), first, rows);
    }
  }

  /** The first values of a result. */
  #read(tensor: Pointer | undefined, count: number): Float32Array {
    const values = new Float32Array(tensor === undefined ? 0 : count);
    if (tensor !== undefined) this.#parts.ggml.functions.ggml_backend_tensor_get(tensor, values, 0, values.byteLength);
    return values;
  }
}

/** Graphs by key; the least recently used are dropped first. */
class GraphCache<Graph extends { readonly bytes: number; dispose(): void }> {
  readonly #graphs = new Map<string, Graph>();
  #bytes = 0;

  get(key: string, build: () => Graph): Graph {
    const known = this.#graphs.get(key);
    if (known) {
      // A map iterates in the order of insertion.
      this.#graphs.delete(key);
      this.#graphs.set(key, known);
      return known;
    }
    const graph = build();
    this.#graphs.set(key, graph);
    this.#bytes += graph.bytes;
    for (const oldest of this.#graphs.keys()) {
      if (oldest === key || (this.#graphs.size <= MOST_GRAPHS && this.#bytes <= MOST_GRAPH_BYTES)) break;
      this.drop((each) => each === oldest);
    }
    return graph;
  }

  drop(isDropped: (key: string) => boolean): void {
    for (const [key, graph] of this.#graphs) {
      if (!isDropped(key)) continue;
      this.#graphs.delete(key);
      this.#bytes -= graph.bytes;
      graph.dispose();
    }
  }
}
