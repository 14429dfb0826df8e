import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Backend, SequenceInput, TopTokens } from '../backends/backend.ts';
import { createGgmlBackend } from '../backends/ggml/index.ts';
import { createOnnxBackend } from '../backends/onnx/index.ts';
import { createReferenceBackend } from '../backends/reference/index.ts';
import { createTestCudaBackend } from '../backends/testing/cuda.ts';
import type { LoadedAdapter } from '../models/adapter.ts';
import type { ModelConfig } from '../models/config.ts';
import { type Fingerprint, fingerprint } from '../models/fingerprint.ts';
import type { LoadedModel } from '../models/load.ts';
import { MatrixRows } from '../models/matrix-rows.ts';
import { type RandomAdapterOptions, randomAdapter, randomModel } from '../models/testing/random-model.ts';
import { type RandomVisionOptions, randomVisionModel } from '../models/testing/random-vision-model.ts';
import { randomFamily, type TinyFamily } from '../models/testing/tiny-families.ts';
import { type DeviceClient, GpuHostConnection, type Outcome, type Sampler } from '../protocol/client.ts';
import type { Operation } from '../protocol/operations.ts';
import { GpuHost, type GpuHostOptions, type HostedModel } from '../server/gpu-host.ts';

export const GREEDY: Sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
export const NONE = new Uint32Array();
/** Slots of a page of test hosts, unless their options say otherwise. */
const PAGE_SIZE = 8;
/** Opens an inferlet with four pages, in tests that write frames themselves. */
export const OPEN_INFERLET: Operation<'open-inferlet'> = {
  op: 'open-inferlet',
  name: 'x',
  epoch: 0,
  tenant: 't',
  maxPages: 4,
  maxPriority: 10,
  firstTokenMs: 0,
  perTokenMs: 0,
  arrival: 1,
  family: '',
  familyEpoch: 0,
  familyPages: 0,
  tenantPages: { pages: null, readAt: 0 },
  functionName: '',
  traceparent: '',
};

export interface TestHost extends AsyncDisposable {
  readonly model: LoadedModel;
  /** The adapters of `options.adapters`. */
  readonly adapters: ReadonlyMap<string, LoadedAdapter>;
  readonly host: GpuHost;
  readonly address: string;
  readonly directory: string;
  connect(): Promise<GpuHostConnection>;
  /** Stops this host and starts a new one at the same address. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface TestHostOptions {
  readonly pageCount?: number;
  readonly pageSize?: number;
  readonly seed?: number;
  /** `reference` by default; `onnx` computes in 32 bits on one thread, `cuda` in float32. */
  readonly backend?: Backend['name'];
  readonly shape?: Partial<ModelConfig>;
  /** A model of this family, without regard to `shape`. */
  readonly family?: TinyFamily;
  /** Gives the model a vision tower. */
  readonly vision?: RandomVisionOptions;
  readonly model?: Partial<HostedModel>;
  /** Random low-rank adapters by name, with the seed of each. */
  readonly adapters?: Readonly<Record<string, RandomAdapterOptions & { readonly seed: number }>>;
  /** Wraps each backend, for example with a counter. */
  readonly wrap?: (backend: Backend) => Backend;
  /** Bytes of the kept rows of the embedding matrix. */
  readonly keptEmbeddingBytes?: number;
  /** True to keep persistent exports and the swap file on disk, across restarts. */
  readonly kv?: boolean;
  readonly host?: Partial<GpuHostOptions>;
}

/** A GPU host in this process, behind a real socket, with a tiny random model. */
export async function startTestHost(options: TestHostOptions = {}): Promise<TestHost> {
  const directory = mkdtempSync(join(tmpdir(), 'pie-h-'));
  const shape = { heads: 4, kvHeads: 2, headDim: 8, layers: 2, contextLength: 96, ...options.shape };
  const { seed = 1, vision } = options;
  const place = join(directory, 'model');
  const random = () => (options.family ? randomFamily(place, options.family, seed) : randomModel(place, shape, seed));
  const model = vision ? await randomVisionModel(place, { text: shape, ...vision }, seed) : await random();
  const adapters = new Map<string, LoadedAdapter>();
  for (const [name, { seed, ...rest }] of Object.entries(options.adapters ?? {}))
    adapters.set(name, await randomAdapter(join(directory, `adapter-${name}`), model.config, seed, rest));
  const socket = join(directory, 's');
  const connections = new Set<GpuHostConnection>();
  const pool = { pageSize: options.pageSize ?? PAGE_SIZE, pageCount: options.pageCount ?? 64 };
  const backends = new Set<Backend>();
  const start = async (): Promise<GpuHost> => {
    const backend = await createBackend(model, options.backend ?? 'reference', pool);
    backends.add(backend);
    const hosted: HostedModel = {
      name: 'tiny',
      backend: options.wrap?.(backend) ?? backend,
      directory: model.directory,
      embeddings: new MatrixRows(model.tensors.info('model.embed_tokens.weight'), options.keptEmbeddingBytes),
      adapters,
      ...(options.kv ? { kv: { directory: join(directory, 'kv'), fingerprint: fingerprintOf(model, backend) } } : {}),
      ...options.model,
    };
    // The calls of a frame arrive in one turn, however slow the machine: tests count the device steps that these calls make.
    const limits = { sliceMs: Number.POSITIVE_INFINITY, ...options.host?.limits };
    const newHost = new GpuHost([hosted], { log: silentLog, ...options.host, limits });
    await newHost.listen(socket);
    return newHost;
  };
  let host = await start();
  return {
    model,
    adapters,
    directory,
    address: socket,
    get host() {
      return host;
    },
    async connect() {
      const connection = await GpuHostConnection.connect(socket);
      connections.add(connection);
      return connection;
    },
    async restart() {
      await host.close();
      host = await start();
    },
    stop: () => host.close(),
    async [Symbol.asyncDispose]() {
      for (const connection of connections) connection.close();
      await host.close();
      for (const backend of backends) await backend.dispose();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function createBackend(
  model: LoadedModel,
  name: Backend['name'],
  pool: { readonly pageSize: number; readonly pageCount: number },
): Promise<Backend> {
  switch (name) {
    case 'reference':
      return createReferenceBackend(model, pool);
    case 'onnx':
      return createOnnxBackend(model, { ...pool, bits: 32, threads: 1 });
    case 'cuda':
      return createTestCudaBackend(model, pool);
    case 'ggml':
      return createGgmlBackend(model, { ...pool, bits: 32, threads: 1 });
  }
}

function fingerprintOf(model: LoadedModel, { name, pageSize }: Backend): Fingerprint {
  return fingerprint(model, { backend: name, bits: 32, headBits: 32, pageSize });
}

/** The value, or a test failure with the error. */
export function must<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'err') throw new Error(`${outcome.val.tag}: ${outcome.val.val}`);
  return outcome.val;
}

/** The tag of an error, or `ok`. */
export function tagOf(outcome: Outcome<unknown>): string {
  return outcome.tag === 'ok' ? 'ok' : outcome.val.tag;
}

export function range(from: number, to: number): Uint32Array {
  return Uint32Array.from({ length: to - from }, (_, i) => from + i);
}

/** A step that writes `tokens`, the first at `position`, into the pages that it reads, and samples the token after them. */
export function samplingStep(
  tokens: ArrayLike<number>,
  position: number,
  pages: Uint32Array,
  sampler = GREEDY,
): Operation<'step'> {
  return {
    op: 'step',
    request: {
      tokens: Uint32Array.from(tokens),
      positions: range(position, position + tokens.length),
      inPages: pages,
      outPages: pages,
      mask: undefined,
      rows: 1,
      output: { tag: 'sample', val: sampler },
    },
  };
}

/** Prefills `prompt` and decodes `count` tokens greedily, one fused step each. */
export async function generate(
  inferlet: DeviceClient,
  queue: number,
  prompt: readonly number[],
  count: number,
): Promise<number[]> {
  const pages = must(inferlet.allocatePages(queue, Math.ceil((prompt.length + count) / PAGE_SIZE)));
  let tokens: ArrayLike<number> = prompt;
  let position = 0;
  const decodedTokens: number[] = [];
  while (decodedTokens.length < count) {
    const result = must(await inferlet.ask(queue, samplingStep(tokens, position, pages)));
    position += tokens.length;
    tokens = result.tokens;
    decodedTokens.push(tokens[0] as number);
  }
  inferlet.freePages(queue, pages);
  return decodedTokens;
}

/** The model's results without the host: whole sequences, computed at once by a separate backend. */
export class Oracle {
  readonly #backend: Backend;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  static async of(model: LoadedModel): Promise<Oracle> {
    return new Oracle(await createReferenceBackend(model, { pageSize: 8, pageCount: 4 }));
  }

  /** The most probable tokens after each of the last `rows` inputs; `visible[i][j]` is true when input i sees input j; causal by default. */
  async top(
    tokens: readonly number[],
    positions: readonly number[],
    rows: number,
    topK: number,
    visible?: readonly (readonly boolean[])[],
  ): Promise<TopTokens> {
    const [output] = await this.#backend.forward([
      {
        inputs: { kind: 'tokens', tokens: Uint32Array.from(tokens) },
        positions: Uint32Array.from(positions),
        context: NONE,
        mask: visible ? Uint8Array.from(visible.flat(), Number) : 'causal',
        writes: NONE,
        output: { kind: 'top', rows, topK },
      },
    ]);
    if (output?.kind !== 'top') throw new Error('no top tokens');
    return output;
  }

  /** State after each of `tokens`, computed causally. */
  async states(tokens: readonly number[]): Promise<Float32Array[]> {
    const [output] = await this.#backend.forward([
      {
        inputs: { kind: 'tokens', tokens: Uint32Array.from(tokens) },
        positions: range(0, tokens.length),
        context: NONE,
        mask: 'causal',
        writes: NONE,
        output: { kind: 'states', rows: tokens.length },
      },
    ]);
    if (output?.kind !== 'states') throw new Error('no states');
    const { hiddenSize } = this.#backend.config;
    return tokens.map((_, i) => output.states.slice(i * hiddenSize, (i + 1) * hiddenSize));
  }

  /** The attention that each of `tokens` received from the last `queries` of them, summed. */
  async attention(tokens: readonly number[], queries: number): Promise<Float32Array> {
    const context = tokens.length - queries;
    const rest = { mask: 'causal', output: { kind: 'none' } } as const;
    const sequence = (from: number, to: number, slots: Uint32Array, attention: boolean): SequenceInput => ({
      ...rest,
      inputs: { kind: 'tokens', tokens: Uint32Array.from(tokens.slice(from, to)) },
      positions: range(from, to),
      context: range(0, from),
      writes: slots,
      attention,
    });
    if (context > 0) await this.#backend.forward([sequence(0, context, range(0, context), false)]);
    const [output] = await this.#backend.forward([sequence(context, tokens.length, NONE, true)]);
    if (!output?.attention) throw new Error('no attention');
    return output.attention;
  }

  async greedy(prompt: readonly number[], count: number): Promise<number[]> {
    const tokens = [...prompt];
    while (tokens.length < prompt.length + count) {
      const { tokens: best } = await this.top(tokens, [...tokens.keys()], 1, 1);
      tokens.push(best[0] as number);
    }
    return tokens.slice(prompt.length);
  }
}

/** Waits until a condition holds. It has no deadline besides the test's timeout. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(2);
}
