import type { LoadedAdapter } from '#gpu-host/models/adapter.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { expectedTensors, type LoadedModel, openWeights } from '#gpu-host/models/load.ts';
import { widenBlocks } from '#gpu-host/models/widen.ts';
import type { Device } from '../../protocol/host.ts';
import type {
  Backend,
  DeviceAdapter,
  GraphReport,
  SequenceInput,
  SequenceOutput,
  StateScores,
  TopTokens,
} from '../backend.ts';
import { checkCopy, checkPage, checkPicked, checkScore, checkSizes, checkStates, pickedRows } from '../check.ts';
import { OnnxImageEncoder } from '../onnx/vision.ts';
import { CUDA_TRAITS, requireTraits } from '../traits.ts';
import { CudaAdapter, mostAdapterBytes } from './adapter.ts';
import {
  type CudaAddon,
  type CudaDevice,
  CudaError,
  type EngineHandle,
  fromAddon,
  type KvPrecision,
  loadAddon,
  type Precision,
  versionText,
} from './addon.ts';
import { BatchWords, readResults } from './batch-words.ts';
import { engineTraits } from './engine-traits.ts';
import { tensorPlaces } from './weights.ts';

/** Options of {@link createCudaBackend}. */
export interface CudaBackendOptions {
  readonly pageSize: number;
  readonly pageCount: number;
  /** The card's number in CUDA's order; the first by default. */
  readonly device?: number;
  /** Most bytes of the card's memory that weights, pages, scratch and the reserve may take; all free memory by default. */
  readonly memoryBytes?: number;
  /** `bf16` by default. */
  readonly precision?: Precision;
  /** Format of kept keys and values; the format of the computation by default. */
  readonly kv?: KvPrecision;
  /** Most inputs of one device step, 512 by default. Larger batches are computed in several steps. */
  readonly maxRows?: number;
  /** Most sequences of one device step, 256 by default. */
  readonly maxSequences?: number;
  /** Most inputs of a sequence that keeps no keys; `maxRows` by default. */
  readonly maxUnkeptRows?: number;
  /** Threads of the image encoder, which runs on the CPU; ONNX Runtime chooses by default. */
  readonly threads?: number;
  /** True, the default, to let a step's kernels begin while the previous kernel ends. */
  readonly dependentLaunch?: boolean;
  /** True, the default, to read the keys of a prefix once for all sequences that share it, where that costs less. */
  readonly sharedPrefixes?: boolean;
  /** Most time of the start for capturing graphs of common batch sizes; 0 for no graphs. 10 s by default, and 0 on an emulated card. */
  readonly warmUpMs?: number;
  /** Takes lines about the progress of the start. */
  readonly report?: (line: string, level: 'info' | 'warn') => void;
  /** Bytes left free on the card for adapters that load later. */
  readonly reserveBytes?: number;
  /** The backend takes a step that runs longer than this as hung, and the card as failed; a minute by default. */
  readonly stepDeadlineMs?: number;
  /** Called once, when the card has failed: this process can no longer compute on the card. */
  readonly lost?: (failure: DeviceFailure) => void;
  /** The addon's file, for tests; by default the file that `PIE_CUDA_ADDON` names, or else the built addon. */
  readonly addon?: string;
}

/** Failure of a card; this process cannot use the card any more. */
export interface DeviceFailure {
  /** The failed step and call, in the driver's words. */
  readonly what: string;
  /** The card, its memory use, and the versions of driver and runtime. */
  readonly device: string;
}

const DEFAULT_STEP_DEADLINE_MS = 60_000;
const DEFAULT_WARM_UP_MS = 10_000;
const DEFAULT_ROWS = 512;
const DEFAULT_SEQUENCES = 256;
const DEFAULT_PRECISION: Precision = 'bf16';
const NO_CUBLAS =
  'cuBLASLt was not found or does not start, so prompts and steps of many rows take longer (with bf16 from 33 rows on, up to 1.8 times as long). Install it (libcublasLt.so.12 or .13, a part of CUDA), or name its file by PIE_CUBLASLT.';

/**
 * Runs a model on an NVIDIA card. The card holds weights and pages. The engine takes plain floats, so this function first widens quantised
 * blocks. Each step is one call of the engine; the calling thread is free while the step runs.
 *
 * @throws CudaError when the addon was not built, there is no such card, or the model and its pages do not fit it; ModelError when a file of the
 * weights was changed or removed since the model was opened
 */
export async function createCudaBackend(model: LoadedModel, options: CudaBackendOptions): Promise<Backend> {
  requireTraits(model.config, 'cuda', CUDA_TRAITS);
  const addon = loadAddon(options.addon);
  if (addon.emulated && options.addon === undefined)
    process.emitWarning('the CUDA device is emulated on the CPU (PIE_CUDA_ADDON): this is for tests, and slow');
  const card = cardOf(addon, options.device ?? 0);
  const widenedModel = await widenBlocks(model, (line) => options.report?.(line, 'info'));
  const images = await OnnxImageEncoder.open(model, options.threads);
  let backend: CudaBackend | undefined;
  try {
    const engine = await openWeights(
      widenedModel.tensors,
      expectedTensors(model.config),
      () => openEngine(addon, card, widenedModel, options),
      (opened) => opened.dispose(),
    );
    backend = new CudaBackend(model, options, addon, card, engine, images);
    if (!engine.hasCublas() && options.precision !== 'float32') options.report?.(NO_CUBLAS, 'warn');
    await warmUp(backend, options, addon.emulated ? 0 : DEFAULT_WARM_UP_MS);
    return backend;
  } catch (error) {
    if (backend) await backend.dispose();
    else await images?.release();
    throw error;
  }
}

async function warmUp(backend: CudaBackend, options: CudaBackendOptions, defaultMs: number): Promise<void> {
  const { warmUpMs = defaultMs, report = () => undefined, maxRows = DEFAULT_ROWS } = options;
  if (warmUpMs === 0) return;
  const { maxSequences = DEFAULT_SEQUENCES, maxUnkeptRows = maxRows } = options;
  await captureGraphsAhead(
    { config: backend.config, forward: (batch) => backend.forward(batch) },
    {
      maxSequences: Math.min(maxSequences, maxRows, maxUnkeptRows),
      limitMs: warmUpMs,
      report: (line) => report(line, 'info'),
      now: () => performance.now(),
    },
  );
}

function cardOf(addon: CudaAddon, device: number): CudaDevice {
  const cards = addon.devices();
  const card = cards[device];
  if (card) return card;
  throw new CudaError(
    'no-device',
    cards.length === 0
      ? 'this process sees no CUDA device: there is no NVIDIA driver, or the driver hides the cards. Use backend = "onnx" to compute on the CPU'
      : `there is no CUDA device ${device}; the devices here are: ${cards.map(({ name }, i) => `${i} (${name})`).join(', ')}`,
  );
}

function openEngine(addon: CudaAddon, card: CudaDevice, model: LoadedModel, options: CudaBackendOptions): EngineHandle {
  const { config } = model;
  const { maxRows = DEFAULT_ROWS } = options;
  try {
    return new addon.Engine(
      {
        hidden: config.hiddenSize,
        intermediate: config.intermediateSize,
        layers: config.layers,
        heads: config.heads,
        kvHeads: config.kvHeads,
        headDim: config.headDim,
        vocabulary: config.vocabularySize,
        rmsEpsilon: config.rmsNormEpsilon,
        tiedEmbeddings: config.tiedEmbeddings,
        attentionBias: config.attentionBias,
        queryKeyNorm: config.queryKeyNorm,
        ...engineTraits(config),
        device: options.device ?? 0,
        pageSize: options.pageSize,
        pageCount: options.pageCount,
        maxRows,
        maxSequences: options.maxSequences ?? DEFAULT_SEQUENCES,
        scratchSlots: options.maxUnkeptRows ?? maxRows,
        memoryBytes: options.memoryBytes ?? 0,
        reserveBytes: options.reserveBytes ?? 0,
        precision: options.precision ?? DEFAULT_PRECISION,
        kv: options.kv ?? 'as computed',
        graphs: true,
        dependentLaunch: options.dependentLaunch ?? true,
        sharedPrefixes: options.sharedPrefixes ?? true,
        cublas: true,
      },
      tensorPlaces(model),
    );
  } catch (caught) {
    const error = fromAddon(caught);
    if (!(error instanceof CudaError)) throw error;
    const hint =
      error.code === 'out-of-memory'
        ? '. Lower "pages" or "max_batch_tokens" (scratch memory grows with it), or raise "memory_mb" if the card has free memory'
        : '';
    throw new CudaError(error.code, `${card.name} (device ${options.device ?? 0}): ${error.message}${hint}`, {
      cause: caught,
    });
  }
}

class CudaBackend implements Backend {
  readonly name = 'cuda';
  readonly config: ModelConfig;
  readonly precision: Precision;
  readonly kv: KvPrecision | undefined;
  readonly device: Device;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly pageBytes: number;
  readonly checksSlots = true;
  readonly ahead = true;
  readonly mixesAdapters = true;
  readonly truncatesDraws = true;
  readonly images: OnnxImageEncoder | undefined;
  readonly #addon: CudaAddon;
  readonly #card: CudaDevice;
  readonly #engine: EngineHandle;
  readonly #words: BatchWords;
  /** Number of rows for which the last batch picks a token. `picked` inputs of the next batch name tokens by row. */
  #picks = 0;
  readonly #maxRows: number;
  readonly #deadline: Deadline;
  readonly #pageWait: SharedWait;
  #lost: ((failure: DeviceFailure) => void) | undefined;
  readonly #scoreInTime: EngineHandle['score'] = (...inputs) =>
    this.#deadline.of(this.#engine.score(...inputs), 'a scoring');

  constructor(
    { config }: LoadedModel,
    options: CudaBackendOptions,
    addon: CudaAddon,
    card: CudaDevice,
    engine: EngineHandle,
    images: OnnxImageEncoder | undefined,
  ) {
    const { pageSize, device = 0, precision = DEFAULT_PRECISION, kv, maxRows, stepDeadlineMs, lost } = options;
    const { count, bytes, tableSlots } = engine.pages();
    const { weights, pool, scratch } = engine.memory();
    this.config = config;
    this.precision = precision;
    this.kv = kv;
    this.device = {
      name: card.name,
      index: device,
      memory: { takenBytes: weights + pool + scratch, totalBytes: card.memoryBytes },
    };
    this.pageSize = pageSize;
    this.pageCount = count;
    this.pageBytes = bytes;
    this.images = images;
    this.#addon = addon;
    this.#card = card;
    this.#engine = engine;
    this.#words = new BatchWords(config, tableSlots);
    this.#maxRows = maxRows ?? DEFAULT_ROWS;
    this.#deadline = new Deadline(stepDeadlineMs ?? DEFAULT_STEP_DEADLINE_MS, (text) =>
      this.#failure(new CudaError('device-lost', text)),
    );
    this.#pageWait = new SharedWait(() => this.#deadline.of(this.#engine.pagesSettled(), 'a copy of pages'));
    this.#lost = lost;
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    const previousPicks = this.#picks;
    this.#picks = 0;
    if (batch.length === 0) return [];
    checkPicked(batch, previousPicks);
    // The addon checks slots, tokens and numbers while it copies them.
    for (const sequence of batch) {
      checkSizes(this.config, sequence);
      CudaAdapter.of(sequence.adapter);
    }
    try {
      const pendingResults = this.#submit(batch);
      this.#picks = pickedRows(batch);
      return readResults(this.config, batch, await this.#deadline.of(pendingResults, 'a step'));
    } catch (caught) {
      throw this.#failure(caught);
    }
  }

  #submit(batch: readonly SequenceInput[]): Promise<ArrayBuffer> {
    try {
      return this.#engine.submit(this.#words.write(batch));
    } catch (error) {
      this.#words.forgetTables();
      throw error;
    }
  }

  async loadAdapter(adapter: LoadedAdapter): Promise<DeviceAdapter> {
    try {
      return await CudaAdapter.load(this.#engine, adapter, this.config.layers, (loading) =>
        this.#deadline.of(loading, 'the load of an adapter'),
      );
    } catch (caught) {
      throw this.#failure(caught);
    }
  }

  adapterBytes(adapter: LoadedAdapter): number {
    return mostAdapterBytes(adapter, this.config, this.precision === 'float32' ? 4 : 2, this.#maxRows);
  }

  async project(states: Float32Array, count: number, topK: number): Promise<TopTokens> {
    checkStates(this.config, states, count);
    try {
      const k = Math.min(topK, this.config.vocabularySize);
      const entryCount = count * k;
      const words =
        count > 0
          ? await this.#deadline.of(this.#engine.project(states, count, k), 'a projection')
          : new ArrayBuffer(0);
      const tokens = new Uint32Array(words, 0, entryCount);
      return { topK: k, tokens, logProbabilities: new Float32Array(words, 4 * entryCount, entryCount) };
    } catch (caught) {
      throw this.#failure(caught);
    }
  }

  async score(states: Float32Array, count: number, tokens: readonly Uint32Array[]): Promise<StateScores> {
    checkScore(this.config, states, count, tokens);
    const listStarts = new Int32Array(count + 1);
    tokens.forEach((list, row) => {
      listStarts[row + 1] = listStarts[row] + list.length;
    });
    const flatTokens = new Uint32Array(listStarts[count]);
    tokens.forEach((list, row) => {
      flatTokens.set(list, listStarts[row]);
    });
    try {
      const words = count > 0 ? await this.#scoreInTime(states, count, flatTokens, listStarts) : new ArrayBuffer(0);
      const scores = new Float32Array(words, 0, flatTokens.length);
      const entropies = new Float32Array(words, 4 * flatTokens.length, count);
      return {
        logProbabilities: tokens.map((_, row) => scores.subarray(listStarts[row], listStarts[row + 1])),
        entropies,
      };
    } catch (caught) {
      throw this.#failure(caught);
    }
  }

  copySlots(sources: Uint32Array, destinations: Uint32Array, shifts?: Int32Array): void {
    checkCopy(this.pageSize * this.pageCount, sources, destinations, shifts);
    this.#guarded(() => this.#engine.copySlots(sources, destinations, shifts));
  }

  readPage(page: number, into: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, into);
    this.#guarded(() => this.#engine.readPage(page, into));
  }

  writePage(page: number, from: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, from);
    this.#guarded(() => this.#engine.writePage(page, from));
  }

  queueReadPage(page: number, into: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, into);
    this.#guarded(() => this.#engine.readPage(page, into, true));
  }

  queueWritePage(page: number, from: Uint8Array): void {
    checkPage(this.pageCount, this.pageBytes, page, from);
    this.#guarded(() => this.#engine.writePage(page, from, true));
  }

  settlePages(): void {
    this.#guarded(() => this.#engine.settlePages());
  }

  async pagesSettled(): Promise<void> {
    try {
      await this.#pageWait.wait();
    } catch (caught) {
      throw this.#failure(caught);
    }
  }

  allocatePinned(bytes: number): Uint8Array | undefined {
    const memory = this.#addon.allocatePinned(bytes);
    return memory && new Uint8Array(memory);
  }

  graphs(): GraphReport {
    return this.#guarded(() => this.#engine.graphs());
  }

  async dispose(): Promise<void> {
    this.#engine.dispose();
    await this.images?.release();
  }

  #guarded<R>(work: () => R): R {
    try {
      return work();
    } catch (caught) {
      throw this.#failure(caught);
    }
  }

  /** Converts an error of the addon into the error to throw. Calls `lost` first when the card is lost. */
  #failure(caught: unknown): unknown {
    const error = fromAddon(caught);
    if (error instanceof CudaError && error.code === 'device-lost') {
      const lost = this.#lost;
      this.#lost = undefined;
      lost?.({ what: error.message, device: this.#describe() });
    }
    return error;
  }

  #describe(): string {
    const { name, memoryBytes, driverVersion, runtimeVersion } = this.#card;
    const memory = `${gib(memoryBytes)} GiB, of which ${gib(this.device.memory?.takenBytes ?? 0)} are taken`;
    const versions = `driver for CUDA ${versionText(driverVersion)}, runtime ${versionText(runtimeVersion)}`;
    return `device ${this.device.index} (${name}; ${memory}, with ${this.pageCount} pages; ${versions})`;
  }
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}

/** Sizes to which the engine pads decode steps; GRAPH_BUCKETS of `native/engine/options.h`. */
const SIZES = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128];
/** Tokens wanted of a row: by greedy decoding, by samplers of up to 64 candidates, and by those without a limit. */
const TOP_KS = [1, 64, 256];
/** Steps alternate between two areas of device memory. For each area, the engine launches a step twice directly, then captures its graph. */
const STEPS = 6;
const REPORT_INTERVAL_MS = 2000;

export interface GraphsAheadOptions {
  /** Most sequences of a batch. */
  readonly maxSequences: number;
  /** Time after which no further batch is computed. */
  readonly limitMs: number;
  /** Takes lines about the progress. */
  readonly report: (line: string) => void;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
}

/**
 * Captures the graphs of decode steps of common sizes, smallest first, before the first user pays for them. The batches keep no keys.
 *
 * @returns number of batch shapes whose graphs were captured
 */
export async function captureGraphsAhead(
  { config, forward }: { readonly config: ModelConfig; readonly forward: Backend['forward'] },
  { maxSequences, limitMs, report, now }: GraphsAheadOptions,
): Promise<number> {
  const topKs = [...new Set(TOP_KS.map((topK) => Math.min(topK, config.vocabularySize)))];
  const shapes = SIZES.filter((size) => size <= maxSequences).flatMap((size) => topKs.map((topK) => ({ size, topK })));
  const startedMs = now();
  let reportedMs = startedMs;
  let captured = 0;
  for (const { size, topK } of shapes) {
    for (let step = 0; step < STEPS; step++) {
      if (now() - startedMs >= limitMs) {
        report(`captured the graphs of ${captured} of ${shapes.length} batch shapes; warm_up_s is over`);
        return captured;
      }
      await forward(decodes(size, topK));
    }
    captured++;
    if (now() - reportedMs < REPORT_INTERVAL_MS || captured === shapes.length) continue;
    reportedMs = now();
    report(`captures graphs: ${captured} of ${shapes.length} batch shapes, up to ${size} sequences`);
  }
  const seconds = ((now() - startedMs) / 1000).toFixed(1);
  report(`captured the graphs of all ${shapes.length} batch shapes in ${seconds} s`);
  return captured;
}

function decodes(count: number, topK: number): SequenceInput[] {
  const [none, zero] = [new Uint32Array(0), Uint32Array.of(0)];
  return Array.from({ length: count }, () => ({
    inputs: { kind: 'tokens', tokens: zero },
    positions: zero,
    context: none,
    mask: 'causal',
    writes: none,
    output: { kind: 'top', rows: 1, topK, tokensOnly: true },
  }));
}

/** A timer that is later than this shows that the process or the machine stood still. */
const STOOD_STILL_MS = 1000;

/** Bounds the waits for a card. */
export class Deadline {
  readonly #ms: number;
  readonly #onMissed: (text: string) => void;

  /** @param onMissed called with a text about work that is not done after `ms` milliseconds */
  constructor(ms: number, onMissed: (text: string) => void) {
    this.#ms = ms;
    this.#onMissed = onMissed;
  }

  /** Settles as `work` does. @param what names the work in the text for `onMissed` */
  async of<R>(work: Promise<R>, what: string): Promise<R> {
    let isPending = true;
    const fail = () => {
      if (isPending) this.#onMissed(`${what} has not ended for ${this.#ms / 1000} s: the card hangs`);
    };
    let timer: NodeJS.Timeout | undefined;
    const watch = () => {
      const dueMs = performance.now() + this.#ms;
      timer = setTimeout(() => {
        // If the whole machine stood still, so did the thread that waits for the card: the work gets its time again.
        if (performance.now() - dueMs > STOOD_STILL_MS) watch();
        // If this thread itself was late, the event loop reports finished work before it runs the immediate.
        else setImmediate(fail);
      }, this.#ms);
    };
    watch();
    try {
      return await work;
    } finally {
      isPending = false;
      clearTimeout(timer);
    }
  }
}

/** Lets callers wait for work that began before their calls. At most two waits exist: the running one and the next, which later callers share. */
export class SharedWait {
  readonly #begin: () => Promise<unknown>;
  #running: Promise<unknown> = Promise.resolve();
  #next: Promise<unknown> | undefined;

  /** @param begin begins a wait for all work that began before its call */
  constructor(begin: () => Promise<unknown>) {
    this.#begin = begin;
  }

  wait(): Promise<unknown> {
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      const begun = this.#begin();
      this.#running = begun.catch(() => undefined);
      return begun;
    });
    return this.#next;
  }
}
