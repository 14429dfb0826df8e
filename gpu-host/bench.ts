import { fork } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { COMPUTING_BACKENDS } from '#infra/model-entry.ts';
import type { Backend, SequenceInput } from './backends/backend.ts';
import type { KvPrecision, Precision } from './backends/cuda/addon.ts';
import { createCudaBackend } from './backends/cuda/index.ts';
import { createGgmlBackend } from './backends/ggml/index.ts';
import { createOnnxBackend } from './backends/onnx/index.ts';
import { createReferenceBackend } from './backends/reference/index.ts';
import { loadModel } from './models/load.ts';
import { pullModel } from './models/pull.ts';
import { type DeviceClient, GpuHostConnection, type Outcome, type Sampler } from './protocol/client.ts';
import { aheadShare } from './protocol/host.ts';

/**
 * Compares the time per token through frames, batcher and handlers with the time of the bare backend, in one run:
 * `node gpu-host/bench.ts [--clients 1,8,32] [--tokens 100] [--rounds 3] [--model stories15m] [--bits 32] [--head-bits 32] [--backend onnx]
 * [--precision bf16] [--kv fp8]`.
 * A bare round calls the backend's step back to back, with the same batch and context. Bare rounds and rounds through the host alternate; the output
 * has the medians of the ratios of their times.
 */
const { values } = parseArgs({
  options: {
    clients: { type: 'string', default: '1,8,32' },
    tokens: { type: 'string', default: '100' },
    rounds: { type: 'string', default: '3' },
    model: { type: 'string', default: 'stories15m' },
    bits: { type: 'string', default: '32' },
    'head-bits': { type: 'string', default: '32' },
    backend: { type: 'string', default: 'onnx' },
    precision: { type: 'string', default: 'bf16' },
    kv: { type: 'string' },
  },
});

const backendName =
  COMPUTING_BACKENDS.find((name) => name === values.backend) ??
  refuse(`There is no backend "${values.backend}". The backends are ${COMPUTING_BACKENDS.join(', ')}.`);

const PAGE_SIZE = 16;
const PAGES = 1024;
const GREEDY: Sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
const tokens = Number(values.tokens);
const pagesPerSequence = Math.ceil((tokens + 1) / PAGE_SIZE);

type Decoder = (connection: GpuHostConnection, inferlet: DeviceClient) => Promise<void>;

/** Decoders of `tokens` tokens: with three calls a token, with one call a token, and with one run for all tokens. */
const decoders: Record<string, Decoder> = {
  'three calls': threeCalls,
  fused,
  'run-ahead': runAhead,
};

async function fused(connection: GpuHostConnection, inferlet: DeviceClient): Promise<void> {
  const queue = inferlet.createQueue(modelName(connection));
  const pages = unwrap(inferlet.allocatePages(queue, pagesPerSequence));
  let token = Uint32Array.of(1);
  for (let i = 0; i < tokens; i++) {
    const result = await inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: token,
        positions: Uint32Array.of(i),
        inPages: pages,
        outPages: pages,
        mask: undefined,
        rows: 1,
        output: { tag: 'sample', val: GREEDY },
      },
    });
    token = unwrap(result).tokens as Uint32Array<ArrayBuffer>;
  }
}

async function threeCalls(connection: GpuHostConnection, inferlet: DeviceClient): Promise<void> {
  const queue = inferlet.createQueue(modelName(connection));
  const pages = unwrap(inferlet.allocatePages(queue, pagesPerSequence));
  const embeds = unwrap(inferlet.allocateEmbeds(queue, 2));
  const input = embeds.slice(0, 1);
  const output = embeds.slice(1);
  let token = 1;
  for (let i = 0; i < tokens; i++) {
    inferlet.send(queue, {
      op: 'embed-text',
      tokens: Uint32Array.of(token),
      positions: Uint32Array.of(i),
      embeds: input,
    });
    inferlet.send(queue, { op: 'forward', inPages: pages, inEmbeds: input, outPages: pages, outEmbeds: output });
    const next = unwrap(await inferlet.ask(queue, { op: 'next-distribution', embed: output[0] as number, topK: 1 }));
    token = next.tokens[0] as number;
  }
}

async function runAhead(connection: GpuHostConnection, inferlet: DeviceClient): Promise<void> {
  const queue = inferlet.createQueue(modelName(connection));
  const pages = unwrap(inferlet.allocatePages(queue, pagesPerSequence));
  const none = new Uint32Array();
  const run = inferlet.run(queue, {
    token: 1,
    position: 0,
    pages,
    maxTokens: tokens,
    sampler: GREEDY,
    stopTokens: none,
  });
  for (let done = false; !done; ) done = unwrap(await run.next()).finished !== undefined;
}

function modelName(connection: GpuHostConnection): string {
  return connection.models[0]?.name ?? '';
}

function unwrap<T>(outcome: Outcome<T>): T {
  if (outcome.tag === 'err') throw new Error(`${outcome.val.tag}: ${outcome.val.val}`);
  return outcome.val;
}

/** Runs the backend's step back to back, with the same batch and contexts. @returns milliseconds per step */
async function bareStepMs(backend: Backend, clients: number): Promise<number> {
  const inputs = new Uint32Array(clients).fill(1);
  const startedMs = performance.now();
  for (let position = 0; position < tokens; position++) {
    const batch: SequenceInput[] = [];
    for (let c = 0; c < clients; c++) {
      const first = c * pagesPerSequence * PAGE_SIZE;
      const context = new Uint32Array(position);
      for (let i = 0; i < position; i++) context[i] = first + i;
      batch.push({
        inputs: { kind: 'tokens', tokens: inputs.slice(c, c + 1) },
        positions: Uint32Array.of(position),
        context,
        mask: 'causal',
        writes: Uint32Array.of(first + position),
        output: { kind: 'top', rows: 1, topK: 1, tokensOnly: true },
      });
    }
    const outputs = await backend.forward(batch);
    for (let c = 0; c < clients; c++) {
      const output = outputs[c];
      if (output?.kind === 'top') inputs[c] = output.tokens[0] as number;
    }
  }
  return (performance.now() - startedMs) / tokens;
}

async function runThroughHost(
  connection: GpuHostConnection,
  decode: Decoder,
  clients: number,
): Promise<{ stepMs: number; batch: number; deviceMs: number; ahead: number }> {
  const inferlets = Array.from({ length: clients }, (_, i) =>
    connection.openInferlet({ id: `bench-${i}`, maxPages: PAGES, arrival: i }),
  );
  await connection.stats({ reset: true });
  const startedMs = performance.now();
  await Promise.all(inferlets.map((inferlet) => decode(connection, inferlet)));
  const stepMs = (performance.now() - startedMs) / tokens;
  const stats = (await connection.stats()).models[0];
  await Promise.all(inferlets.map((inferlet) => inferlet.close()));
  return {
    stepMs,
    batch: stats?.meanBatchSize ?? 0,
    deviceMs: (stats?.deviceBusyMs ?? 0) / tokens,
    ahead: stats ? aheadShare(stats) : 0,
  };
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? Number.NaN;
}

const directory = mkdtempSync(join(tmpdir(), 'pie-bench-'));
const address = join(directory, 's');
const kv = values.kv === undefined ? {} : { kv: values.kv as KvPrecision };
const model = {
  name: values.model,
  source: values.model,
  backend: backendName,
  bits: Number(values.bits),
  headBits: Number(values['head-bits']),
  precision: values.precision as Precision,
  ...kv,
  pages: PAGES,
  pageSize: PAGE_SIZE,
  maxBatchTokens: 512,
  maxBatchSequences: 256,
  threads: 0,
};
writeFileSync(join(directory, 'c.json'), JSON.stringify({ name: 'bench', address, models: [model], encoders: [] }));
const host = fork(join(import.meta.dirname, 'main.ts'), {
  env: { ...process.env, PIE_GPU_HOST_CONFIG: join(directory, 'c.json') },
  stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
});
const connection = await GpuHostConnection.connect(address, { deadlineMs: 60_000 });
const loaded = await loadModel((await pullModel(values.model)).directory);
const pool = { pageSize: PAGE_SIZE, pageCount: PAGES };
const backend = await openBackend();
try {
  for (const clients of values.clients.split(',').map(Number)) {
    const results: Record<string, Record<'ratio' | 'step' | 'batch' | 'device' | 'ahead', number[]>> = {};
    const bareMs: number[] = [];
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const [name, decode] of Object.entries(decoders)) {
        const bareRoundMs = await bareStepMs(backend, clients);
        const { stepMs, batch, deviceMs, ahead } = await runThroughHost(connection, decode, clients);
        const row = results[name] ?? { ratio: [], step: [], batch: [], device: [], ahead: [] };
        results[name] = row;
        bareMs.push(bareRoundMs);
        row.ratio.push(stepMs / bareRoundMs);
        row.step.push(stepMs);
        row.batch.push(batch);
        row.device.push(deviceMs);
        row.ahead.push(ahead);
      }
    }
    console.log(
      `${clients} clients: bare ${median(bareMs).toFixed(3)} ms a step (${Math.min(...bareMs).toFixed(3)} to ${Math.max(...bareMs).toFixed(3)})`,
    );
    for (const [name, { ratio, step, batch, device, ahead }] of Object.entries(results)) {
      const spread = `${Math.min(...ratio).toFixed(2)} to ${Math.max(...ratio).toFixed(2)}`;
      console.log(
        `  ${name.padEnd(12)} ${median(step).toFixed(3)} ms, ${median(ratio).toFixed(3)} × bare (${spread}), device ${median(device).toFixed(3)} ms, mean batch ${median(batch).toFixed(1)}, ${(100 * median(ahead)).toFixed(0)} % of steps ahead`,
      );
    }
  }
} finally {
  connection.close();
  host.kill('SIGTERM');
  await backend.dispose();
  rmSync(directory, { recursive: true, force: true });
}

function openBackend(): Promise<Backend> {
  switch (backendName) {
    case 'reference':
      return createReferenceBackend(loaded, pool);
    case 'cuda':
      return createCudaBackend(loaded, { ...pool, precision: model.precision, ...kv });
    case 'ggml':
      return createGgmlBackend(loaded, {
        ...pool,
        bits: model.bits as 32 | 8 | 4,
        headBits: model.headBits as 32 | 8 | 4,
      });
    case 'onnx':
      return createOnnxBackend(loaded, {
        ...pool,
        bits: model.bits as 32 | 8 | 4,
        headBits: model.headBits as 32 | 8 | 4,
      });
    default:
      throw new Error(`The bare loop does not run on ${backendName satisfies never}.`);
  }
}

function refuse(message: string): never {
  console.error(message);
  process.exit(1);
}
