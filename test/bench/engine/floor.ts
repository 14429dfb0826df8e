import { Worker } from 'node:worker_threads';
import { InferenceSession, Tensor } from '#gpu-host/backends/onnx/library.ts';
import { matMulModel } from './matmul-model.ts';
import { streamModule } from './stream-module.ts';

/** Measured peak rates of this machine. */
export interface MachineRates {
  /** Bytes a second that all threads together read from a buffer of `size` bytes, read repeatedly. */
  bytesPerSecond(size: number): Promise<number>;
  /** Floating-point operations a second of a large float32 matrix product. */
  readonly operationsPerSecond: number;
}

/** Time for which each thread reads. */
const READ_MS = 150;
/** Rows and columns of the matrices. */
const MATRIX = 1024;
const MATRIX_TIMES = 12;

/** Measures the machine with `threads` threads. `bytesPerSecond` rounds the size to whole MiB and measures each size once. */
export async function measureMachine(threads: number): Promise<MachineRates> {
  const measuredRates = new Map<number, number>();
  return {
    operationsPerSecond: await matrixPeak(threads),
    async bytesPerSecond(size) {
      const rounded = Math.max(1, Math.round(size / 2 ** 20)) * 2 ** 20;
      const cached = measuredRates.get(rounded);
      if (cached !== undefined) return cached;
      const measured = await readBandwidth(rounded, threads);
      measuredRates.set(rounded, measured);
      return measured;
    },
  };
}

/** Best rate over a few products of two 1024 × 1024 matrices, computed by ONNX Runtime. */
async function matrixPeak(threads: number): Promise<number> {
  const session = await InferenceSession.create(matMulModel(), { intraOpNumThreads: threads });
  const feeds = {
    a: new Tensor('float32', new Float32Array(MATRIX * MATRIX).fill(0.5), [MATRIX, MATRIX]),
    b: new Tensor('float32', new Float32Array(MATRIX * MATRIX).fill(0.25), [MATRIX, MATRIX]),
  };
  let bestMs = Number.POSITIVE_INFINITY;
  for (let i = 0; i < MATRIX_TIMES; i++) {
    const start = performance.now();
    await session.run(feeds);
    bestMs = Math.min(bestMs, performance.now() - start);
  }
  await session.release();
  return (2 * MATRIX ** 3 * 1000) / bestMs;
}

/** Code of a reading thread: sends `ready`, waits for a message, reads for `ms`, and sends the bytes a second that it read. */
const READER = `
const { workerData, parentPort } = require('node:worker_threads');
const { module, bytes, ms } = workerData;
const memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / 65536) + 1 });
const { sum } = new WebAssembly.Instance(new WebAssembly.Module(module), { e: { m: memory } }).exports;
new Float64Array(memory.buffer).fill(1);
sum(0, bytes);
parentPort.postMessage('ready');
parentPort.once('message', () => {
  const start = performance.now();
  let passes = 0;
  while (performance.now() - start < ms) { sum(0, bytes); passes++; }
  parentPort.postMessage((passes * bytes * 1000) / (performance.now() - start));
});`;

/** All threads read at the same time, each its share of `size` bytes. */
async function readBandwidth(size: number, threads: number): Promise<number> {
  const bytes = Math.floor(size / threads / 1024) * 1024;
  const module = streamModule();
  const workers = Array.from(
    { length: threads },
    () => new Worker(READER, { eval: true, workerData: { module, bytes, ms: READ_MS } }),
  );
  try {
    await Promise.all(workers.map((worker) => nextMessage(worker)));
    const results = workers.map((worker) => nextMessage(worker));
    for (const worker of workers) worker.postMessage('go');
    const rates = (await Promise.all(results)) as number[];
    return rates.reduce((total, rate) => total + rate, 0);
  } finally {
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
}

function nextMessage(worker: Worker): Promise<unknown> {
  return new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}
