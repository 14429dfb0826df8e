/**
 * Prints, for random batches of stories15M, the share of work that is padding and the time of a batch, at 32, 8 and 4 bits. Decode steps
 * have contexts of 16 to 256 tokens. In mixed batches, an eighth of the sequences are prefill chunks of 16 to 64 tokens.
 *
 * Run it as `node gpu-host/backends/testing/padding-table.ts`.
 */
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import type { Backend, SequenceInput } from '../backend.ts';
import { createOnnxBackend } from '../onnx/index.ts';
import { Random, range } from './scenario.ts';

const SEED = 7;
const BATCHES = 16;
const ROUNDS = 3;
const SHORTEST_CONTEXT = 16;
const LONGEST_CONTEXT = 256;
const SHORTEST_CHUNK = 16;
const LONGEST_CHUNK = 64;
const PREFILL_SHARE = 1 / 8;
const PAGE_SIZE = 16;

function randomBatch(random: Random, sequences: number, prefillShare: number): SequenceInput[] {
  let nextSlot = 0;
  return Array.from({ length: sequences }, () => {
    const isPrefill = random.next() < prefillShare;
    const inputs = isPrefill ? SHORTEST_CHUNK + random.below(LONGEST_CHUNK - SHORTEST_CHUNK + 1) : 1;
    const context = SHORTEST_CONTEXT + random.below(LONGEST_CONTEXT - inputs - SHORTEST_CONTEXT + 1);
    const firstSlot = nextSlot;
    const end = firstSlot + context;
    nextSlot = end + inputs;
    return {
      inputs: { kind: 'tokens', tokens: new Uint32Array(inputs).fill(1) },
      positions: range(context, context + inputs),
      context: range(firstSlot, end),
      mask: 'causal',
      writes: range(end, nextSlot),
      output: { kind: 'top', rows: 1, topK: 1, tokensOnly: true },
    };
  });
}

/** Milliseconds of a batch: the mean, over all batches, of the batch's fastest round. */
async function measure(backend: Backend, batches: readonly SequenceInput[][]): Promise<number> {
  const fastest = batches.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, batch] of batches.entries()) {
      const startMs = performance.now();
      await backend.forward(batch);
      fastest[i] = Math.min(fastest[i], performance.now() - startMs);
    }
  }
  return fastest.reduce((sum, ms) => sum + ms, 0) / batches.length;
}

const { directory } = await pullModel('stories15m');
const model = await loadModel(directory);
console.log('| bits | batch | sequences | padding | ms |\n| --- | --- | --- | --- | --- |');
for (const bits of [32, 8, 4] as const) {
  for (const [name, prefillShare] of [
    ['decode', 0],
    ['mixed', PREFILL_SHARE],
  ] as const) {
    for (const sequences of [8, 32, 128]) {
      const random = new Random(SEED);
      const pageCount = Math.ceil((sequences * LONGEST_CONTEXT) / PAGE_SIZE);
      const backend = await createOnnxBackend(model, { pageSize: PAGE_SIZE, pageCount, bits });
      const ms = await measure(
        backend,
        Array.from({ length: BATCHES }, () => randomBatch(random, sequences, prefillShare)),
      );
      const padding = 100 * (backend.paddingShare?.() ?? 0);
      console.log(`| ${bits} | ${name} | ${sequences} | ${padding.toFixed(1)} % | ${ms.toFixed(2)} |`);
      await backend.dispose();
    }
  }
}
