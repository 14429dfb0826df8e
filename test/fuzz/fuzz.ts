import { existsSync, mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { OnnxEncoder } from '#gpu-host/backends/onnx/encoder.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import type { HostedEncoder } from '#gpu-host/encoders/engine.ts';
import { hostBytes } from '#gpu-host/memory/host-bytes.ts';
import type { EncoderKind } from '#gpu-host/models/encoder/config.ts';
import { fingerprint } from '#gpu-host/models/fingerprint.ts';
import { MatrixRows } from '#gpu-host/models/matrix-rows.ts';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { randomAdapter, randomModel } from '#gpu-host/models/testing/random-model.ts';
import type { PagesMaker } from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { DeviceClient } from '#gpu-host/protocol/device-client.ts';
import { GpuHost, type HostedModel } from '#gpu-host/server/gpu-host.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { attack, type Budget } from './attacker.ts';
import { must, Neighbour } from './neighbour.ts';
import { ANSWER_DEADLINE_MS, Observations } from './peer.ts';

export interface FuzzOptions {
  /** Mutated frames to send. */
  readonly frames: number;
  readonly seed: number;
  /** Called from time to time with the number of frames sent so far. */
  readonly onProgress?: (sent: number) => void;
}

export interface FuzzReport {
  readonly seed: number;
  readonly frames: number;
  readonly seconds: number;
  /** Number of frames by mutation. */
  readonly mutations: Readonly<Record<string, number>>;
  /** Number of attackers' connections by their final code. */
  readonly endings: Readonly<Record<string, number>>;
  /** Answers to attackers' calls: `ok`, or the case of the error. */
  readonly answers: Readonly<Record<string, number>>;
  /** Attackers' inferlets that the host ended to reclaim memory. */
  readonly terminated: number;
  /** Pages moved out to the swap store. */
  readonly swapsOut: number;
  /** Bytes of attackers' copies of pages that the host kept in the end. */
  readonly keptCopyBytes: number;
  /** Rounds of well-behaved inferlets, each bit-identical to the same round without attackers. */
  readonly neighbourRounds: number;
  /** Longest stall of the event loop that host and attackers share, milliseconds. */
  readonly longestStallMs: number;
  /** Resident memory and JavaScript heap, MB: before, at most, and after. */
  readonly residentMb: readonly [before: number, peak: number, after: number];
  readonly heapMb: readonly [before: number, after: number];
  /** Failures; empty after a clean run. */
  readonly problems: readonly string[];
}

const ATTACKERS = 8;
const NEIGHBOURS_A_MODEL = 2;
/** Number of different rounds that a neighbour can play. */
const SCRIPTS = 12;
/** So few pages that the attackers must swap. */
const PAGES = 30;
/** Without swap, a tenant above its share would be terminated: enough pages that the neighbours stay within the share of their tenant, one of three. */
const PAGES_WITHOUT_SWAP = 48;
/** Longest wait for the host to free what its closed connections held. */
const SETTLE_MS = 60_000;
/** Permitted growth of the process: V8 keeps free heap, and buffer pools fill. */
const MAX_HEAP_GROWTH_MB = 64;
const MAX_RESIDENT_GROWTH_MB = 768;
const MAX_VECTOR_ERROR = 1e-4;
const SHAPE = { layers: 1, contextLength: 96, vocabularySize: 96 };

/**
 * Sends mutated frames to a real GPU host on a real socket. The host has two tiny models and two tiny encoders. Meanwhile, well-behaved inferlets
 * work on connections of their own. Checks that nothing crashes or hangs, that neighbours receive the same bits as alone, that every answer is
 * readable and none blames the host, and that the host frees all resources in the end.
 */
export async function fuzz(options: FuzzOptions): Promise<FuzzReport> {
  const startedMs = performance.now();
  const directory = mkdtempSync(join(tmpdir(), 'pie-fuzz-'));
  const problems: string[] = [];
  const observations = new Observations();
  const budget: Budget = { left: options.frames, sent: new Map() };
  const handlesBefore = openHandles();
  let rounds = 0;
  const models = [
    await hostedModel(directory, 'cached', 11, { prefixCache: true }),
    await hostedModel(directory, 'swapping', 12, {
      prefixCache: false,
      swapMemoryBytes: 1 << 16,
      swapDiskBytes: 1 << 20,
    }),
  ];
  const encoders = await Promise.all(
    (['embedding', 'reranker'] as const).map((kind) => hostedEncoder(directory, kind)),
  );
  const bytes = hostBytes();
  const host = new GpuHost(models, { log: silentLog, encoders, bytes });
  const address = await host.listen(join(directory, 's'));
  const connections = await Promise.all(models.map(() => GpuHostConnection.connect(address)));
  const neighbours = models.flatMap(({ name }, model) =>
    Array.from({ length: NEIGHBOURS_A_MODEL }, (_, i) => ({
      model,
      neighbour: new Neighbour(connections[model]!, name, SHAPE.vocabularySize, `${name}-${i}`),
    })),
  );
  for (const { neighbour } of neighbours) await neighbour.exportContext();
  const expected = await rehearse(models, neighbours);
  const reader = connections[0]!.openInferlet({ id: 'reader', tenant: 'reader', maxPages: 0, arrival: 0 });
  const vectors = await encodeSome(reader);
  const memory = new MemoryWatch();
  const stalls = monitorEventLoopDelay({ resolution: 10 });
  stalls.enable();
  const target = {
    address,
    models: models.map(makerOf),
    encoders: encoders.length,
    vocabularySize: SHAPE.vocabularySize,
  };

  let isAttacking = true;
  const watch = setInterval(() => {
    memory.samplePeak();
    options.onProgress?.(options.frames - Math.max(0, budget.left));
  }, 200);
  const neighbourRuns = neighbours.map(async ({ model, neighbour }, i) => {
    for (let round = i; isAttacking || round < i + SCRIPTS; round++) {
      const actual = await inTime(neighbour.round(round % SCRIPTS)).catch(
        (error: Error) => `an error: ${error.message}`,
      );
      rounds++;
      const expectedHash = expected[model]?.[round % SCRIPTS];
      if (actual === expectedHash) continue;
      problems.push(
        `neighbour ${i} heard ${actual} in round ${round % SCRIPTS}, and ${expectedHash} without attackers`,
      );
      break;
    }
  });
  const encoding = (async () => {
    while (isAttacking) {
      const found = await inTime(encodeSome(reader));
      const error = Math.max(...vectors.map((value, i) => Math.abs(value - (found[i] ?? Number.NaN))));
      if (error < MAX_VECTOR_ERROR && found.length === vectors.length) continue;
      problems.push(`the vectors of a neighbour differ by ${error} from those without attackers`);
      break;
    }
  })().catch((error: Error) => problems.push(`a neighbour that encodes texts: ${error.message}`));
  const attacks = Array.from({ length: ATTACKERS }, (_, index) =>
    attack(target, options.seed, index, budget, observations).catch((error: Error) => {
      budget.left = 0;
      problems.push(`attacker ${index}, ${error.message}`);
    }),
  );
  await Promise.all(attacks);
  isAttacking = false;
  await Promise.all([...neighbourRuns, encoding]);
  clearInterval(watch);
  stalls.disable();
  const swapsOut = host.stats().models.reduce((sum, model) => sum + model.swapsOut, 0);

  const cleanup = Promise.all([...neighbours.map(({ neighbour }) => neighbour.close()), reader.close()]).then(() =>
    removeNames(connections[0]!, models, observations),
  );
  await inTime(cleanup).catch((error: Error) =>
    problems.push(`the exports and files of the attackers could not be removed: ${error.message}`),
  );
  for (const connection of connections) connection.close();
  problems.push(...(await leftBehind(host)));
  if (bytes.copies.arriving > 0) problems.push(`${bytes.copies.arriving} bytes of unfinished copies are left`);
  await host.close();
  await Promise.all(
    [...models.map(({ backend }) => backend), ...encoders.map(({ encoder }) => encoder)].map((each) => each.dispose()),
  );
  rmSync(directory, { recursive: true, force: true });
  for (const text of observations.internal) problems.push(`the host blamed itself: ${text}`);
  problems.push(...memory.growth());
  const settleDeadline = performance.now() + SETTLE_MS;
  while (openHandles() > handlesBefore && performance.now() < settleDeadline) await sleep(10);
  const handlesLeft = openHandles() - handlesBefore;
  if (handlesLeft > 0) problems.push(`${handlesLeft} file handles were left open`);

  return {
    seed: options.seed,
    frames: [...budget.sent.values()].reduce((sum, count) => sum + count, 0),
    seconds: (performance.now() - startedMs) / 1000,
    mutations: Object.fromEntries(budget.sent),
    endings: Object.fromEntries(observations.endings),
    answers: Object.fromEntries(observations.answers),
    terminated: observations.terminated,
    swapsOut,
    keptCopyBytes: bytes.copies.bytes,
    neighbourRounds: rounds,
    longestStallMs: Math.round(stalls.max / 1e6),
    residentMb: memory.resident,
    heapMb: memory.heap,
    problems,
  };
}

async function hostedModel(
  directory: string,
  name: string,
  seed: number,
  memory: Pick<HostedModel, 'prefixCache' | 'swapMemoryBytes' | 'swapDiskBytes'>,
): Promise<HostedModel> {
  const model = await randomModel(join(directory, name), SHAPE, seed);
  const adapters = new Map([
    ['one', await randomAdapter(join(directory, `${name}-one`), model.config, seed + 100, { rank: 2 })],
    ['two', await randomAdapter(join(directory, `${name}-two`), model.config, seed + 200, { targets: ['v_proj'] })],
  ]);
  const kvFingerprint = fingerprint(model, { backend: 'reference', bits: 32, headBits: 32, pageSize: 8 });
  return {
    name,
    backend: await createReferenceBackend(model, {
      pageSize: 8,
      pageCount: memory.swapMemoryBytes === undefined ? PAGES_WITHOUT_SWAP : PAGES,
    }),
    directory: model.directory,
    embeddings: new MatrixRows(model.tensors.info('model.embed_tokens.weight')),
    maxBatchTokens: 64,
    adapters,
    // Room for one of the two adapters.
    adapterMemoryBytes: adapters.get('one')?.bytes ?? 0,
    kv: { directory: join(directory, 'kv', name), fingerprint: kvFingerprint },
    ...memory,
  };
}

function makerOf({ backend, kv }: HostedModel): PagesMaker {
  const { pageSize, pageBytes } = backend;
  return { fingerprint: kv?.fingerprint.hash ?? '', pageSize, pageBytes };
}

async function hostedEncoder(directory: string, kind: EncoderKind): Promise<HostedEncoder> {
  const encoder = await OnnxEncoder.open(await randomEncoder(join(directory, kind), { kind }, 13), { threads: 1 });
  return { name: kind, encoder, device: { name: 'CPU' }, directory: join(directory, kind) };
}

/** Vectors of a few texts. The order of sums depends on the other texts of a batch, so vectors of two calls differ a little. */
async function encodeSome(inferlet: DeviceClient): Promise<Float32Array> {
  const lengths = Uint32Array.of(3, 12, 7);
  const tokens = Uint32Array.from({ length: 22 }, (_, i) => 5 + i);
  const outcome = await inferlet.encode('embedding', { tokens, lengths, firsts: lengths });
  const vectors = must(outcome);
  if (vectors.length === 0) throw new Error('the encoder returned no vectors');
  return vectors;
}

/** Expected hash of each round without attackers: `[model][round]`. */
async function rehearse(
  models: readonly HostedModel[],
  neighbours: readonly { readonly model: number; readonly neighbour: Neighbour }[],
): Promise<string[][]> {
  const expected: string[][] = [];
  for (const model of models.keys()) {
    const { neighbour } = neighbours.find((one) => one.model === model)!;
    const hashes: string[] = [];
    for (let round = 0; round < SCRIPTS; round++) hashes.push(await neighbour.round(round));
    expected.push(hashes);
  }
  return expected;
}

/** @throws Error when `work` takes longer than a host may take to answer */
async function inTime<T>(work: Promise<T>): Promise<T> {
  const timeout = Promise.withResolvers<never>();
  const fail = () => timeout.reject(new Error(`nothing within ${ANSWER_DEADLINE_MS} ms`));
  const timer = setTimeout(fail, ANSWER_DEADLINE_MS);
  try {
    return await Promise.race([work, timeout.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Removes the exports and files that attackers left, with one inferlet for each of their tenants. */
async function removeNames(
  connection: GpuHostConnection,
  models: readonly HostedModel[],
  { tenants, functions }: Observations,
): Promise<void> {
  for (const tenant of tenants) {
    const inferlet = connection.openInferlet({ id: `cleaner of ${tenant}`, tenant, maxPages: 0, arrival: 0 });
    for (const { name: model } of models) {
      const queue = inferlet.createQueue(model);
      const exports = await inferlet.ask(queue, { op: 'list-exports' });
      for (const { name } of exports.tag === 'ok' ? exports.val : [])
        await inferlet.ask(queue, { op: 'unexport', name });
      for (const functionName of functions) {
        const files = await inferlet.ask(queue, { op: 'file-list', prefix: '', functionName });
        for (const { name } of files.tag === 'ok' ? files.val : [])
          await inferlet.ask(queue, { op: 'file-remove', name, functionName });
      }
    }
    await inferlet.close();
  }
}

/** Describes what the host still holds after all connections have closed. */
async function leftBehind(host: GpuHost): Promise<string[]> {
  const problems: string[] = [];
  const deadline = performance.now() + SETTLE_MS;
  const busy = () => host.stats().connections > 0 || host.stats().models.some(({ inferlets }) => inferlets > 0);
  while (busy() && performance.now() < deadline) await sleep(10);
  const { connections, models, encoders } = host.stats();
  if (connections > 0) problems.push(`${connections} connections are left`);
  for (const { name, inferlets, queues, waitingCalls, pages, swappedOutPages, exports } of models) {
    const held = { inferlets, queues, waitingCalls, ownedPages: pages.owned, swappedOutPages, exports };
    for (const [what, count] of Object.entries(held))
      if (count !== 0) problems.push(`${name}: ${count} ${what} are left`);
    if (pages.free + pages.cached !== pages.total) problems.push(`${name}: ${JSON.stringify(pages)} do not add up`);
  }
  for (const { name, waitingCalls } of encoders)
    if (waitingCalls !== 0) problems.push(`${name}: ${waitingCalls} waitingCalls are left`);
  for (const { memory } of host.engines) {
    try {
      memory.check();
    } catch (error) {
      problems.push(`the host's memory is inconsistent: ${error}`);
    }
  }
  return problems;
}

/** Measures the memory of this process, which runs the host and the attackers. */
class MemoryWatch {
  readonly #collect: () => void;
  readonly #before: NodeJS.MemoryUsage;
  #peak: number;

  constructor() {
    setFlagsFromString('--expose-gc');
    this.#collect = runInNewContext('gc') as () => void;
    this.#collect();
    this.#before = process.memoryUsage();
    this.#peak = this.#before.rss;
  }

  samplePeak(): void {
    this.#peak = Math.max(this.#peak, process.memoryUsage.rss());
  }

  get resident(): readonly [number, number, number] {
    return [mb(this.#before.rss), mb(this.#peak), mb(process.memoryUsage.rss())];
  }

  get heap(): readonly [number, number] {
    this.#collect();
    return [mb(this.#before.heapUsed), mb(process.memoryUsage().heapUsed)];
  }

  growth(): string[] {
    const [heapBefore, heapAfter] = this.heap;
    const [before, peak] = this.resident;
    const problems: string[] = [];
    if (heapAfter > heapBefore + MAX_HEAP_GROWTH_MB)
      problems.push(`the heap grew from ${heapBefore} to ${heapAfter} MB`);
    if (peak > before + MAX_RESIDENT_GROWTH_MB) problems.push(`resident memory grew from ${before} to ${peak} MB`);
    return problems;
  }
}

const mb = (bytes: number): number => Math.round(bytes / 1e5) / 10;

/** Number of open sockets and files of this process; 0 without /proc. */
function openHandles(): number {
  const handles = '/proc/self/fd';
  if (!existsSync(handles)) return 0;
  return readdirSync(handles).filter((handle) => {
    try {
      return /^(socket:|\/(?!dev\/))/.test(readlinkSync(join(handles, handle)));
    } catch {
      return false; // The descriptor of the listing itself, closed by now.
    }
  }).length;
}
