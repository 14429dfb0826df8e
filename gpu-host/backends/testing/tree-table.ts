/**
 * Prints the CPU time of a decode step of 32 forks of stories15M that share a tree of context slots, at 32 bits on one thread. The other columns
 * are multiples of that time. `sharing off`: each fork has a context of its own, with the same keys and values in other slots, so that
 * nothing is shared and the steps read segments. `no context`: the same steps without any context. Each figure is the median of all rounds, with
 * their range. A round measures the three variants in turn.
 *
 * Run it as `node gpu-host/backends/testing/tree-table.ts [rounds]`.
 */
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import type { SequenceInput, SequenceOutput } from '../backend.ts';
import { createOnnxBackend, type OnnxBackend } from '../onnx/index.ts';
import { Random, range, relativeError } from './scenario.ts';

const FORKS = 32;
const PAGE_SIZE = 16;
/** Steps before the measured ones, because segments form only while contexts are decoded step by step. */
const SETTLING_STEPS = 8;
const MEASURED_STEPS = 16;
const STEPS = SETTLING_STEPS + MEASURED_STEPS;
const ROUNDS = Number(process.argv[2] ?? 5);
const SEED = 11;
const TOLERANCE = 1e-4;

/** Levels of a tree, each with its number of branches and the slots of each branch: the first level is common to all forks. */
const TREES: Readonly<Record<string, readonly (readonly [branches: number, slots: number])[]>> = {
  '200 shared, 8 own': [
    [1, 200],
    [FORKS, 8],
  ],
  '200 shared, 40 own': [
    [1, 200],
    [FORKS, 40],
  ],
  '800 shared, 8 own': [
    [1, 800],
    [FORKS, 8],
  ],
  '200 shared, 4 × 64, 8 own': [
    [1, 200],
    [4, 64],
    [FORKS, 8],
  ],
  '200 shared, 4 × 64, 8 × 32, 8 own': [
    [1, 200],
    [4, 64],
    [8, 32],
    [FORKS, 8],
  ],
  '64 shared, 8 × 64, 16 × 64, 8 own': [
    [1, 64],
    [8, 64],
    [16, 64],
    [FORKS, 8],
  ],
};

type Levels = (typeof TREES)[string];

/** Slots of every fork, by index of the fork. */
interface ForkSlots {
  /** The fork's context in the tree. */
  readonly tree: readonly Uint32Array[];
  /** A copy of the fork's context. */
  readonly apart: readonly Uint32Array[];
  /** Slots for the keys and values of its decode steps. */
  readonly steps: readonly Uint32Array[];
}

function depthOf(levels: Levels): number {
  return levels.reduce((sum, [, slots]) => sum + slots, 0);
}

/** Computes the keys and values of a tree, and copies each fork's context. */
async function plant(backend: OnnxBackend, levels: Levels, random: Random): Promise<ForkSlots> {
  let nextSlot = 0;
  const takeSlots = (count: number) => {
    nextSlot += count;
    return range(nextSlot - count, nextSlot);
  };
  let tree: Uint32Array[] = Array.from({ length: FORKS }, () => new Uint32Array(0));
  for (const [branches, length] of levels) {
    const grownPaths: Uint32Array[] = [];
    for (let branch = 0; branch < branches; branch++) {
      const firstFork = branch * (FORKS / branches);
      const context = tree[firstFork];
      const writes = takeSlots(length);
      const inputs = { kind: 'tokens', tokens: random.tokens(backend.config, length) } as const;
      const positions = range(context.length, context.length + length);
      await backend.forward([{ inputs, positions, context, mask: 'causal', writes, output: { kind: 'none' } }]);
      grownPaths.push(Uint32Array.of(...context, ...writes));
    }
    tree = tree.map((_, fork) => grownPaths[Math.floor((fork * branches) / FORKS)]);
  }
  const apart = tree.map((path) => {
    const copy = takeSlots(path.length);
    backend.copySlots(path, copy);
    return copy;
  });
  return { tree, apart, steps: tree.map(() => takeSlots(STEPS)) };
}

interface Decoded {
  readonly cpuMs: number;
  /** The last step's highest log-probabilities, fork by fork. */
  readonly answers: readonly Float32Array[];
}

/** Decodes in every fork, and returns the median step's CPU time. */
async function decode(backend: OnnxBackend, contexts: readonly Uint32Array[], forkSlots: ForkSlots): Promise<Decoded> {
  const times: number[] = [];
  let answers: readonly Float32Array[] = [];
  for (let step = 0; step < STEPS; step++) {
    const batch = contexts.map((context, fork): SequenceInput => {
      const stepSlots = forkSlots.steps[fork];
      return {
        inputs: { kind: 'tokens', tokens: Uint32Array.of(100 + fork) },
        positions: Uint32Array.of(context.length + step),
        context: Uint32Array.of(...context, ...stepSlots.subarray(0, step)),
        mask: 'causal',
        writes: stepSlots.subarray(step, step + 1),
        output: { kind: 'top', rows: 1, topK: 8 },
      };
    });
    const cpuBefore = process.cpuUsage();
    const outputs = await backend.forward(batch);
    const { user, system } = process.cpuUsage(cpuBefore);
    if (step >= SETTLING_STEPS) times.push((user + system) / 1000);
    answers = outputs.map(probabilities);
  }
  return { cpuMs: median(times), answers };
}

function probabilities(output: SequenceOutput): Float32Array {
  return output.kind === 'top' ? output.logProbabilities : new Float32Array(0);
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

function spread(numbers: readonly number[]): string {
  const figure = (each: number) => each.toFixed(2);
  return `${figure(median(numbers))} (${figure(Math.min(...numbers))}–${figure(Math.max(...numbers))})`;
}

async function measure(backend: OnnxBackend, levels: Levels): Promise<string[]> {
  const random = new Random(SEED);
  const forkSlots = await plant(backend, levels, random);
  const empty = forkSlots.tree.map(() => new Uint32Array(0));
  const variants = [forkSlots.tree, forkSlots.apart, empty];
  const rounds: { readonly apart: number; readonly empty: number; readonly ms: number }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const decoded: Decoded[] = new Array(variants.length);
    for (let turn = 0; turn < variants.length; turn++) {
      const variant = (round + turn) % variants.length;
      decoded[variant] = await decode(backend, variants[variant], forkSlots);
    }
    const [tree, apart, none] = decoded;
    tree.answers.forEach((answer, fork) => {
      const error = relativeError(answer, apart.answers[fork]);
      if (!(error <= TOLERANCE)) throw new Error(`fork ${fork} differs by ${error} from itself without sharing`);
    });
    rounds.push({ apart: apart.cpuMs / tree.cpuMs, empty: none.cpuMs / tree.cpuMs, ms: tree.cpuMs });
  }
  return [
    median(rounds.map(({ ms }) => ms)).toFixed(2),
    spread(rounds.map(({ apart }) => apart)),
    spread(rounds.map(({ empty }) => empty)),
  ];
}

const { directory } = await pullModel('stories15m');
const model = await loadModel(directory);
console.log('| slots of the tree | CPU ms | sharing off | no context |\n| --- | --- | --- | --- |');
for (const [name, levels] of Object.entries(TREES)) {
  const treeSlots = levels.reduce((sum, [branches, slots]) => sum + branches * slots, 0);
  const slots = treeSlots + FORKS * (depthOf(levels) + STEPS);
  const pool = { pageSize: PAGE_SIZE, pageCount: Math.ceil(slots / PAGE_SIZE) };
  const backend = await createOnnxBackend(model, { ...pool, bits: 32, threads: 1 });
  try {
    console.log(`| ${[name, ...(await measure(backend, levels))].join(' | ')} |`);
  } finally {
    await backend.dispose();
  }
}
