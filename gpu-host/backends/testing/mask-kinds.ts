import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { Backend, SequenceInput, SequenceOutput } from '../backend.ts';
import { type Random, range, sequence } from './scenario.ts';

/** A pool large enough for every kind of mask. */
export const MASK_POOL = { pageSize: 8, pageCount: 24 } as const;

/** A step that a test takes on a backend. */
export type Step =
  | { readonly kind: 'forward'; readonly batch: readonly SequenceInput[] }
  | {
      readonly kind: 'copy';
      readonly sources: Uint32Array;
      readonly destinations: Uint32Array;
      readonly shifts?: Int32Array;
    }
  /** Reads page `from`, overwrites its slots, and writes the page to `to`. */
  | { readonly kind: 'move-page'; readonly from: number; readonly to: number };

/** One kind of visibility: steps that fill the cache, then a batch whose outputs tests compare. Pure data, the same for all backends. */
export interface Scenario {
  readonly before: readonly Step[];
  readonly batch: readonly SequenceInput[];
}

/** Takes steps in order and returns the outputs of every forward. */
export async function take(backend: Backend, steps: readonly Step[]): Promise<readonly SequenceOutput[]> {
  const outputs: SequenceOutput[] = [];
  for (const step of steps) {
    if (step.kind === 'forward') outputs.push(...(await backend.forward(step.batch)));
    else if (step.kind === 'copy') backend.copySlots(step.sources, step.destinations, step.shifts);
    else {
      const bytes = new Uint8Array(backend.pageBytes);
      backend.readPage(step.from, bytes);
      backend.writePage(step.from, new Uint8Array(backend.pageBytes));
      backend.writePage(step.to, bytes);
    }
  }
  return outputs;
}

type Make = (config: ModelConfig, random: Random) => Scenario;

/** Every kind of mask that inferlets may request, in the form that backends receive. */
export const MASK_KINDS: Readonly<Record<string, Make>> = {
  causal: (config, random) => {
    const long = fill(config, random, range(0, 20));
    const short = fill(config, random, range(24, 29));
    return {
      before: [long, short],
      batch: [
        ask(config, random, 5, { context: range(0, 20), writes: range(32, 37) }),
        ask(config, random, 1, { context: range(24, 29) }),
        ask(config, random, 3, {}),
      ],
    };
  },

  'explicit rows': (config, random) => {
    const mask = (inputs: number, context: number) =>
      Uint8Array.from({ length: inputs * (context + inputs) }, () => (random.next() < 0.6 ? 1 : 0));
    return {
      before: [fill(config, random, range(0, 12))],
      batch: [
        ask(config, random, 6, { context: range(0, 12), mask: mask(6, 12) }),
        ask(config, random, 1, { context: range(0, 12), mask: mask(1, 12) }),
        ask(config, random, 2, { mask: mask(2, 0) }),
      ],
    };
  },

  'inputs that see nothing': (config, random) => {
    const [context, inputs] = [4, 3];
    const width = context + inputs;
    const mask = Uint8Array.from({ length: inputs * width }, (_, i) => (i < width ? 0 : random.below(2)));
    return {
      before: [fill(config, random, range(0, context))],
      batch: [ask(config, random, inputs, { context: range(0, context), mask }), ask(config, random, 2, {})],
    };
  },

  'page omitted': (config, random) => ({
    before: [fill(config, random, range(0, 24))],
    batch: [
      ask(config, random, 2, { context: Uint32Array.of(...range(0, 8), ...range(16, 24)), positions: range(24, 26) }),
    ],
  }),

  'tokens masked': (config, random) => {
    const visibleSlots = range(0, 16).filter((slot) => slot % 3 !== 1);
    const context = 16;
    const width = context + 2;
    const mask = Uint8Array.from({ length: 2 * width }, (_, i) => {
      const input = Math.floor(i / width);
      const key = i % width;
      return Number(key < context ? key % 3 !== 1 : key - context <= input);
    });
    return {
      before: [fill(config, random, range(0, 16))],
      batch: [
        ask(config, random, 2, { context: visibleSlots, positions: range(16, 18) }),
        ask(config, random, 2, { context: range(0, 16), mask }),
      ],
    };
  },

  'several queries per sequence': (config, random) => ({
    before: [fill(config, random, range(0, 10))],
    batch: [
      ask(config, random, 7, { context: range(0, 10), writes: range(16, 23) }),
      ask(config, random, 4, { context: range(0, 10) }),
      ask(config, random, 2, { context: range(0, 10), writes: range(24, 26) }),
    ],
  }),

  'tree draft': (config, random) => {
    // The index of each drafted token's parent, -1 for the first token. A token sees the context, its ancestors and itself.
    const parents = [-1, 0, 0, 1, 1, 2, 3, 3];
    const context = 9;
    const inputs = parents.length;
    const mask = new Uint8Array(inputs * (context + inputs));
    const positions = new Uint32Array(inputs);
    parents.forEach((parent, i) => {
      mask.fill(1, i * (context + inputs), i * (context + inputs) + context);
      positions[i] = parent < 0 ? context : positions[parent] + 1;
      for (let node = i; node >= 0; node = parents[node]) mask[i * (context + inputs) + context + node] = 1;
    });
    return {
      before: [fill(config, random, range(0, context))],
      batch: [ask(config, random, inputs, { context: range(0, context), positions, mask, writes: range(16, 24) })],
    };
  },

  'skipped positions': (config, random) => ({
    before: [
      fill(config, random, range(0, 6), { positions: Uint32Array.of(0, 1, 5, 6, 20, 21) }),
      fill(config, random, range(8, 12), { positions: Uint32Array.of(3, 30, 200, 201) }),
    ],
    batch: [
      ask(config, random, 3, { context: range(0, 6), positions: Uint32Array.of(40, 45, 90) }),
      ask(config, random, 2, { context: range(8, 12), positions: Uint32Array.of(250, 251) }),
    ],
  }),

  'sliding window': (config, random) => {
    const context = 14;
    const inputs = 4;
    const window = 5;
    const mask = Uint8Array.from({ length: inputs * (context + inputs) }, (_, i) => {
      const query = context + Math.floor(i / (context + inputs));
      const key = i % (context + inputs);
      return key <= query && query - key < window ? 1 : 0;
    });
    return {
      before: [fill(config, random, range(0, context))],
      batch: [ask(config, random, inputs, { context: range(0, context), mask, writes: range(16, 20) })],
    };
  },

  'attention sink with shifted copy': (config, random) => {
    // Of 28 tokens, the first four stay as the sink, and the last twelve follow them: from the positions 16 to 27 to the positions 4 to 15.
    const recent = range(16, 28);
    return {
      before: [
        fill(config, random, range(0, 28)),
        {
          kind: 'copy',
          sources: recent,
          destinations: range(36, 48),
          shifts: new Int32Array(12).fill(-12),
        },
      ],
      batch: [
        ask(config, random, 2, { context: Uint32Array.of(...range(0, 4), ...range(36, 48)), positions: range(16, 18) }),
      ],
    };
  },

  'page moved out and in': (config, random) => ({
    before: [fill(config, random, range(0, 13)), { kind: 'move-page', from: 1, to: 5 }],
    batch: [ask(config, random, 2, { context: Uint32Array.of(...range(0, 8), ...range(40, 45)) })],
  }),

  'forks of forks': (config, random) => {
    const [trunk, branches] = [range(0, 70), [range(70, 82), range(82, 94)]];
    const twigs = Array.from({ length: 4 }, (_, i) => range(94 + 5 * i, 99 + 5 * i));
    const paths = twigs.map((twig, i) => [trunk, branches[i % 2], twig] as const);
    const joined = (parts: readonly Uint32Array[]) => Uint32Array.of(...parts.flatMap((part) => [...part]));
    return {
      before: [
        fill(config, random, trunk),
        ...branches.map((branch) => fill(config, random, branch, { context: trunk })),
        ...paths.map(([, branch, twig]) => fill(config, random, twig, { context: joined([trunk, branch]) })),
      ],
      batch: [
        ...paths.map((path, i) => ask(config, random, 1, { context: joined(path), writes: range(120 + i, 121 + i) })),
        // Two forks whose context ends where other forks go on. The second has several inputs.
        ask(config, random, 1, { context: trunk }),
        ask(config, random, 3, { context: joined([trunk, branches[0]]) }),
      ],
    };
  },

  'read after write in one batch': (config, random) => ({
    before: [fill(config, random, range(0, 7)), fill(config, random, range(64, 70))],
    batch: [
      ask(config, random, 6, { context: range(0, 7), writes: range(8, 14) }),
      ask(config, random, 1, { context: range(64, 70), writes: range(70, 71) }),
      ask(config, random, 3, { context: Uint32Array.of(...range(0, 7), ...range(8, 14)), writes: range(16, 19) }),
      // A reader of a part of the first sequence's writes, with an explicit mask; then a reader of all writes of the chain.
      ask(config, random, 2, {
        context: Uint32Array.of(...range(0, 7), ...range(8, 11)),
        mask: Uint8Array.from({ length: 2 * 12 }, (_, i) => {
          const isItself = i % 12 === 10 + Math.floor(i / 12);
          return isItself || i % 3 > 0 ? 1 : 0;
        }),
        writes: range(24, 26),
      }),
      ask(config, random, 1, { context: Uint32Array.of(...range(0, 7), ...range(8, 14), ...range(16, 19)) }),
    ],
  }),
};

/** A step that computes a prompt and writes its keys and values to `slots`. */
function fill(
  config: ModelConfig,
  random: Random,
  slots: Uint32Array,
  rest: Partial<Pick<SequenceInput, 'positions' | 'context'>> = {},
): Step {
  const tokens = random.tokens(config, slots.length);
  return { kind: 'forward', batch: [sequence(config, tokens, { writes: slots, output: { kind: 'none' }, ...rest })] };
}

/** A sequence whose every input a test compares; the test sets the output request. */
function ask(
  config: ModelConfig,
  random: Random,
  inputs: number,
  rest: Partial<Omit<SequenceInput, 'inputs' | 'output'>>,
): SequenceInput {
  return sequence(config, random.tokens(config, inputs), { output: { kind: 'none' }, ...rest });
}
