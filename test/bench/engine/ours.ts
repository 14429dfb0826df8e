/** Our engine in a process of its own: the backend that the GPU host uses, called back to back. `node ours.ts MODEL BITS [THREADS]`. */
import type { Backend } from '#gpu-host/backends/backend.ts';
import { bareLoop } from '#gpu-host/backends/bench.ts';
import { createOnnxBackend } from '#gpu-host/backends/onnx/index.ts';
import { BLOCK_SIZE } from '#gpu-host/backends/onnx/weights.ts';
import { expectedTensors, loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { type Measurement, serve, type Task } from './engines.ts';

const PAGE_SIZE = 16;
/** Room for 128 sequences of a 256-token context. */
const PAGES = 2048;

const [name = 'stories15m', bits = '32', threads = '0'] = process.argv.slice(2);
const model = await loadModel((await pullModel(name)).directory);
const backend = await createOnnxBackend(model, {
  pageSize: PAGE_SIZE,
  pageCount: PAGES,
  bits: Number(bits) as 32 | 8 | 4,
  ...(threads === '0' ? {} : { threads: Number(threads) }),
});

const weights = weightBytes();
const accounted = weights + backend.pageBytes * PAGES;

serve({
  measure: async (task) => {
    const measured = task.kind === 'decode' ? await decode(task) : await prefill(backend, task.tokens, task.times);
    return { ...measured, memory: { resident: process.memoryUsage.rss(), accounted } };
  },
});

/** Bytes of all weights at the given bits, the scales of quantised blocks included: 4 bytes for each block. */
function weightBytes(): number {
  let values = 0;
  for (const [, shape] of expectedTensors(model.config)) values += shape.reduce((product, size) => product * size, 1);
  const bytesPerValue = bits === '32' ? 4 : Number(bits) / 8 + 4 / BLOCK_SIZE;
  return values * bytesPerValue;
}

async function decode(task: Task & { kind: 'decode' }): Promise<Measurement> {
  const { msPerStep, tokens } = await bareLoop(backend, task);
  return { ms: msPerStep, tokens };
}

async function prefill(engine: Backend, tokens: number, times: number): Promise<Measurement> {
  const slots = Uint32Array.from({ length: tokens }, (_, i) => i);
  // Arbitrary token ids, the same as those of the peers.
  const prompt = Uint32Array.from({ length: tokens }, (_, i) => 300 + (i % 1000));
  const forwardOnce = () =>
    engine.forward([
      {
        inputs: { kind: 'tokens', tokens: prompt },
        positions: slots,
        context: new Uint32Array(0),
        mask: 'causal',
        writes: slots,
        output: { kind: 'top', rows: 1, topK: 1, tokensOnly: true },
      },
    ]);
  await forwardOnce();
  const start = performance.now();
  for (let i = 0; i < times; i++) await forwardOnce();
  return { ms: (performance.now() - start) / times };
}
