/**
 * Measures the cost of a decode step on the GPU host's thread, without the device:
 * `node gpu-host/step-bench.ts [--way run|step|whole] [--device idle|cuda] [--runs 32] [--context 1024] [--steps 500] [--rounds 6]
 * [--step-ms 0] [--client-us 0]`.
 * With `--cpu-prof`, Node writes a profile. Sequences decode side by side through the socket. With `run` they decode as runs, whose steps the host
 * hands over ahead; with `step` the client asks for one fused step at a time; `whole` also asks for one step at a time,
 * with all pages allocated before and named in each call.
 * The result is the processor time of this thread in each round; the first rounds warm it up. Clients and kernels (of a card or emulated) have
 * other threads. An `idle` device leaves out the packing of batches and the addon; `cuda` has both, and is slow in emulation.
 * To show how steps follow each other, an idle device takes `--step-ms` for each step, and a client of `step` or `whole` works `--client-us`
 * for each token.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { isMainThread, Worker, workerData } from 'node:worker_threads';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Backend, SequenceInput, SequenceOutput } from './backends/backend.ts';
import { createTestCudaBackend } from './backends/testing/cuda.ts';
import type { ModelConfig } from './models/config.ts';
import { randomModel } from './models/testing/random-model.ts';
import { type DeviceClient, GpuHostConnection } from './protocol/client.ts';
import { GpuHost } from './server/gpu-host.ts';
import { must, NONE, range } from './testing/host.ts';

const PAGE_SIZE = 16;
const PREFILL_TOKENS = 512;
const SAMPLER = { temperature: 0.7, topK: 40, topP: 0.9, minP: 0, seed: 1 };
/** Attention over as many key heads as an 8B model's; everything else minimal. */
const SHAPE = { heads: 8, kvHeads: 8, headDim: 4, layers: 1 };

interface Clients {
  readonly address: string;
  readonly way: string;
  readonly runs: number;
  readonly context: number;
  /** Tokens that each run decodes in a round. */
  readonly steps: number;
  readonly rounds: number;
  /** Microseconds of work for each token. */
  readonly clientUs: number;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      way: { type: 'string', default: 'run' },
      device: { type: 'string', default: 'idle' },
      runs: { type: 'string', default: '32' },
      context: { type: 'string', default: '1024' },
      steps: { type: 'string', default: '500' },
      rounds: { type: 'string', default: '6' },
      'step-ms': { type: 'string', default: '0' },
      'client-us': { type: 'string', default: '0' },
    },
  });
  const { way, device } = values;
  const [runs, context, steps] = [Number(values.runs), Number(values.context), Number(values.steps)];
  const directory = mkdtempSync(join(tmpdir(), 'pie-step-'));
  const model = await randomModel(join(directory, 'model'), { ...SHAPE, contextLength: context + steps }, 1);
  const pool = { pageSize: PAGE_SIZE, pageCount: runs * pagesFor(context + steps) };
  const backend =
    device === 'cuda'
      ? await createTestCudaBackend(model, pool)
      : new IdleBackend(model.config, pool, Number(values['step-ms']));
  const host = new GpuHost([{ name: 'tiny', backend, directory: model.directory }], { log: silentLog });
  const address = await host.listen(join(directory, 's'));
  const clients: Clients = {
    address,
    way,
    runs,
    context,
    steps,
    rounds: Number(values.rounds),
    clientUs: Number(values['client-us']),
  };
  const worker = new Worker(new URL(import.meta.url), { workerData: clients });
  try {
    for (let round = 0; round < clients.rounds; round++) {
      // Leaves out about one token of each sequence at both ends of a round, where the sequences do not decode together.
      const countsBefore = await countsAt(host, (round * steps + 1) * runs);
      const countsAfter = await countsAt(host, ((round + 1) * steps - 1) * runs);
      const stepCount = countsAfter.batches - countsBefore.batches;
      const userUs = countsAfter.cpu.user - countsBefore.cpu.user;
      const systemUs = countsAfter.cpu.system - countsBefore.cpu.system;
      const rows = (countsAfter.decodeTokens - countsBefore.decodeTokens) / stepCount;
      const shareAhead = (countsAfter.stepsAhead - countsBefore.stepsAhead) / stepCount;
      const tokenMs = (countsAfter.atMs - countsBefore.atMs) / (steps - 2);
      process.stdout.write(
        `${((userUs + systemUs) / stepCount).toFixed(1)} µs of the host's thread a step, ${(systemUs / stepCount).toFixed(1)} of them the system's; ` +
          `${stepCount} steps of ${rows.toFixed(1)} rows from ${context} tokens of context on, ` +
          `${Math.round(100 * shareAhead)} % ahead, ${tokenMs.toFixed(2)} ms a token\n`,
      );
    }
  } finally {
    await worker.terminate();
    await host.close();
    await backend.dispose();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** The counts and this thread's processor time (µs) once `decoded` tokens have been decoded. */
async function countsAt(host: GpuHost, decoded: number) {
  const [engine] = host.engines;
  if (!engine) throw new Error('the host has no model');
  const { stats } = engine;
  while (stats.decodeTokens < decoded) await sleep(1);
  const { batches, stepsAhead, decodeTokens } = stats;
  return { batches, stepsAhead, decodeTokens, cpu: process.threadCpuUsage(), atMs: performance.now() };
}

/** A device that computes nothing. It answers after `stepMs`, one step after the other. */
class IdleBackend implements Backend {
  /** The host lets only steps of a backend of this name compute beside its thread. */
  readonly name = 'cuda';
  readonly precision = 'none';
  readonly device = { name: 'idle' };
  readonly config: ModelConfig;
  readonly pageSize: number;
  readonly pageCount: number;
  readonly pageBytes = 4;
  readonly checksSlots = true;
  readonly ahead = true;
  readonly #output: SequenceOutput = {
    kind: 'top',
    topK: 1,
    tokens: NONE,
    logProbabilities: new Float32Array(),
    drawn: Uint32Array.of(7),
  };

  readonly #stepMs: number;
  #freeMs = 0;

  constructor(
    config: ModelConfig,
    { pageSize, pageCount }: { readonly pageSize: number; readonly pageCount: number },
    stepMs: number,
  ) {
    this.config = config;
    this.#stepMs = stepMs;
    this.pageSize = pageSize;
    this.pageCount = pageCount;
  }

  async forward(batch: readonly SequenceInput[]): Promise<readonly SequenceOutput[]> {
    this.#freeMs = Math.max(this.#freeMs, performance.now()) + this.#stepMs;
    const endMs = this.#freeMs;
    // Timers are too coarse for the last two milliseconds, so turns of the event loop pass that time.
    for (let remainingMs = endMs - performance.now(); remainingMs > 0; remainingMs = endMs - performance.now())
      await (remainingMs > 2 ? sleep(remainingMs - 1.5) : new Promise((resolve) => setImmediate(resolve)));
    return batch.map(({ output }) => (output.kind === 'top' ? this.#output : { kind: 'none' }));
  }

  loadAdapter = nothing;
  project = nothing;
  score = nothing;
  copySlots(): void {}
  readPage(): void {}
  writePage(): void {}
  async dispose(): Promise<void> {}
}

async function nothing(): Promise<never> {
  throw new Error('an idle device has nothing to tell');
}

function pagesFor(tokens: number): number {
  return Math.ceil(tokens / PAGE_SIZE) + 1;
}

async function decodeAll({ address, way, runs, context, steps, rounds, clientUs }: Clients): Promise<void> {
  const connection = await GpuHostConnection.connect(address);
  const decode = way === 'run' ? decodeRun : decodeSteps(way === 'whole', clientUs);
  const count = pagesFor(context + steps);
  for (let round = 0; round < rounds; round++) {
    const inferlets = await Promise.all(
      Array.from({ length: runs }, async (_, i) => {
        const inferlet = connection.openInferlet({ id: `${round}-${i}`, maxPages: count, arrival: i });
        const queue = inferlet.createQueue('tiny');
        // With `step`, sequences differ in length, so that their last pages are full at different steps, as those of real programs.
        const length = way === 'step' ? context - (i % PAGE_SIZE) : context;
        const pages = must(inferlet.allocatePages(queue, way === 'step' ? Math.ceil(length / PAGE_SIZE) : count));
        await prefill(inferlet, queue, pages, length, round * runs + i);
        return { inferlet, queue, pages, length };
      }),
    );
    await Promise.all(
      inferlets.map(({ inferlet, queue, pages, length }) => decode(inferlet, queue, pages, length, steps)),
    );
    await Promise.all(inferlets.map(({ inferlet }) => inferlet.close()));
  }
}

type Decode = (
  inferlet: DeviceClient,
  queue: number,
  pages: Uint32Array,
  context: number,
  steps: number,
) => Promise<void>;

const decodeRun: Decode = async (inferlet, queue, pages, context, steps) => {
  const runOptions = { position: context, pages, maxTokens: steps, sampler: SAMPLER, stopTokens: NONE };
  const run = inferlet.run(queue, { token: 1, ...runOptions });
  while (must(await run.next()).finished === undefined);
};

/**
 * Decodes one fused step per token. Each step names the filled pages and the page to write, as the guest library does, and allocates that page when
 * it is needed. With `namesAllPages`, each step names all pages in both lists.
 */
const decodeSteps =
  (namesAllPages: boolean, clientUs: number): Decode =>
  async (inferlet, queue, pages, context, steps) => {
    let token = Uint32Array.of(1);
    let allPages = pages;
    for (let position = context; position < context + steps; position++) {
      const pageIndex = Math.floor(position / PAGE_SIZE);
      if (pageIndex === allPages.length)
        allPages = Uint32Array.of(...allPages, ...must(inferlet.allocatePages(queue, 1)));
      const inPages = namesAllPages ? allPages : allPages.slice(0, Math.ceil(position / PAGE_SIZE));
      const pageFields = {
        inPages,
        outPages: namesAllPages ? allPages : allPages.slice(pageIndex, pageIndex + 1),
        mask: undefined,
        rows: 1,
      };
      const request = { tokens: token, positions: Uint32Array.of(position), ...pageFields };
      const result = await inferlet.ask(queue, {
        op: 'step',
        request: { ...request, output: { tag: 'sample', val: SAMPLER } },
      });
      token = Uint32Array.from(must(result).tokens);
      for (const endMs = performance.now() + clientUs / 1000; performance.now() < endMs; );
    }
  };

/** Prefills the text number `text`. The text begins with this number as two digits of base 90, so that the prefix cache finds nothing. */
async function prefill(inferlet: DeviceClient, queue: number, pages: Uint32Array, context: number, text: number) {
  for (let from = 0; from < context; from += PREFILL_TOKENS) {
    const positions = range(from, Math.min(context, from + PREFILL_TOKENS));
    const tokens = positions.map(
      (position) => 3 + ((position < 2 ? Math.floor(text / 90 ** position) : position) % 90),
    );
    const pageFields = { inPages: pages, outPages: pages, mask: undefined, rows: 0 };
    must(
      await inferlet.ask(queue, { op: 'step', request: { tokens, positions, ...pageFields, output: { tag: 'none' } } }),
    );
  }
}

if (isMainThread) await main();
else await decodeAll(workerData as Clients);
