/**
 * Measures how long `BatchWords` takes to encode decode steps, without the addon: `node gpu-host/backends/cuda/words-bench.ts
 * [--sequences 32] [--context 32768] [--steps 200]`. A step brings the device either whole lists of slots, or, with slot tables, only the slots
 * that changed. The program prints the bytes of the last step and the median time of a step for either way.
 */
import { parseArgs } from 'node:util';
import type { SequenceInput } from '../backend.ts';
import { BatchWords } from './batch-words.ts';

const PAGE_SIZE = 16;
/** Maximum number of slots in the engine's slot tables (`KEYS` of `native/engine/options.cu`). */
const TABLE_SLOTS = 4 << 20;
const WARM_STEPS = 20;

const { values } = parseArgs({
  options: {
    sequences: { type: 'string', default: '32' },
    context: { type: 'string', default: '32768' },
    steps: { type: 'string', default: '200' },
  },
});
const sequences = Number(values.sequences);
const context = Number(values.context);
const steps = Number(values.steps);

/** The slots of a sequence whose pages alternate with the pages of the other sequences. */
function slotsOf(sequence: number, count: number): Uint32Array {
  return Uint32Array.from({ length: count }, (_, i) => {
    const page = Math.floor(i / PAGE_SIZE) * sequences + sequence;
    return page * PAGE_SIZE + (i % PAGE_SIZE);
  });
}

function decode(slots: Uint32Array, length: number): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: Uint32Array.of(7) },
    positions: Uint32Array.of(length),
    // A copy, because callers gather the slots anew for each step.
    context: slots.slice(0, length),
    mask: 'causal',
    writes: slots.slice(length, length + 1),
    output: { kind: 'top', rows: 1, topK: 1, tokensOnly: true },
  };
}

function measure(tableSlots: number): { bytes: number; us: number } {
  const words = new BatchWords({ hiddenSize: 4096, vocabularySize: 128_256 } as never, tableSlots);
  const lists = Array.from({ length: sequences }, (_, i) => slotsOf(i, context + WARM_STEPS + steps));
  const times: number[] = [];
  let bytes = 0;
  for (let step = 0; step < WARM_STEPS + steps; step++) {
    const batch = lists.map((slots) => decode(slots, context + step));
    const startedMs = performance.now();
    bytes = words.write(batch).byteLength;
    if (step >= WARM_STEPS) times.push(1000 * (performance.now() - startedMs));
  }
  times.sort((a, b) => a - b);
  return { bytes, us: times[times.length >> 1] ?? 0 };
}

const wholeLists = measure(0);
const slotTables = measure(TABLE_SLOTS);
const format = ({ bytes, us }: typeof wholeLists) => `${bytes} bytes, ${us.toFixed(0)} µs`;
console.log(
  `${sequences} sequences of ${context} slots, a step: whole lists ${format(wholeLists)}; slot tables ${format(slotTables)}`,
);
