import fc from 'fast-check';
import type { BatchLimits } from '../select.ts';
import type { BatchPolicy } from './policies.ts';
import type { SimShape } from './sim-call.ts';

export const SPACES = 3;
export const QUEUES_PER_SPACE = 3;

/** Operations of a schedule. `dice` is the seed of the world's random choices: orders, failures, pauses. */
export type Operation =
  | { readonly type: 'push'; readonly space: number; readonly queue: number; readonly shape: SimShape }
  /** Time passes, the batch on the device ends, and the next one leaves. */
  | { readonly type: 'step'; readonly ms: number; readonly dice: number }
  | { readonly type: 'priority'; readonly space: number; readonly queue: number; readonly priority: number }
  /** The queue closes, and another one with this `maxPriority` opens in its place. */
  | { readonly type: 'close'; readonly space: number; readonly queue: number; readonly maxPriority: number }
  /** A paused run may go on, or something that a call still lacks arrives. */
  | { readonly type: 'consume'; readonly dice: number };

const dice = fc.nat({ max: 0x7fffffff });
const space = fc.nat({ max: SPACES - 1 });
const queue = fc.nat({ max: QUEUES_PER_SPACE - 1 });
// Keys up to 5 are pages, those from 6 to 8 embeds.
const pages = fc.uniqueArray(fc.nat({ max: 5 }), { maxLength: 2 });
const embeds = fc.uniqueArray(fc.integer({ min: 6, max: 8 }), { maxLength: 1 });
/** Keys that a forward writes: embeds for its states, and now and then a page, as if it did more than fill the page's empty slots. */
const outputs = fc.oneof(
  { weight: 3, arbitrary: embeds },
  { weight: 1, arbitrary: fc.uniqueArray(fc.nat({ max: 8 }), { maxLength: 2 }) },
);
const pagesOrEmbeds = fc.uniqueArray(fc.nat({ max: 8 }), { maxLength: 2 });

const tokens = fc.oneof(
  { weight: 6, arbitrary: fc.constant(1) },
  { weight: 1, arbitrary: fc.integer({ min: 2, max: 12 }) },
  { weight: 2, arbitrary: fc.integer({ min: 13, max: 120 }) },
);

export const ADAPTERS = ['a', 'b'] as const;
/** Most calls are of the model, some of one of its adapters. */
export const variant = fc.constantFrom(undefined, undefined, undefined, ...ADAPTERS);

const forward: fc.Arbitrary<SimShape> = fc
  .record({
    tokens,
    chunkable: fc.boolean(),
    /** 0 makes a run, if the call has 2 to 12 tokens. */
    run: fc.nat({ max: 7 }),
    pages,
    fills: pages,
    inputs: embeds,
    outputs,
    variant,
    /** 0 makes a call that arrives without something that it needs. */
    late: fc.nat({ max: 5 }),
  })
  .map((made) => ({
    kind: 'forward',
    reads: [...made.pages, ...made.inputs],
    fills: made.fills,
    writes: made.outputs.filter((key) => !made.fills.includes(key)),
    tokens: made.tokens,
    chunkable: made.chunkable,
    run: made.run === 0 && made.tokens > 1 && made.tokens <= 12,
    variant: made.variant,
    late: made.late === 0,
  }));

export const shape: fc.Arbitrary<SimShape> = fc.oneof(
  { weight: 7, arbitrary: forward },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('project' as const),
      reads: embeds,
      scores: fc.constantFrom(0, 0, 4, 30),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('encode' as const), writes: embeds, tokens, late: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('instant' as const, 'idle' as const),
      reads: pagesOrEmbeds,
      writes: pagesOrEmbeds,
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'barrier' as const }) },
);

const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 24, arbitrary: fc.record({ type: fc.constant('push' as const), space, queue, shape }) },
  { weight: 12, arbitrary: fc.record({ type: fc.constant('step' as const), ms: fc.nat({ max: 10 }), dice }) },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('priority' as const),
      space,
      queue,
      priority: fc.integer({ min: -20, max: 20 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('close' as const),
      space,
      queue,
      maxPriority: fc.nat({ max: 12 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('consume' as const), dice }) },
);

/** Schedules of up to `length` operations; fast-check shrinks a failing one. */
export function schedules(length: number): fc.Arbitrary<Operation[]> {
  return fc.array(operation, { maxLength: length, size: 'max' });
}

export const policies: fc.Arbitrary<BatchPolicy> = fc.oneof(
  fc.constant<BatchPolicy>({ kind: 'adaptive' }),
  fc.constant<BatchPolicy>({ kind: 'eager' }),
  fc.record({
    kind: fc.constant('k-only' as const),
    calls: fc.integer({ min: 1, max: 9 }),
    maxWaitMs: fc.integer({ min: 1, max: 30 }),
  }),
  fc.record({ kind: fc.constant('t-only' as const), intervalMs: fc.integer({ min: 1, max: 15 }) }),
  fc.record({ kind: fc.constant('rate' as const), maxWaitMs: fc.integer({ min: 1, max: 20 }) }),
);

export const limits: fc.Arbitrary<BatchLimits> = fc.constantFrom(
  { maxCalls: 6, maxTokens: 40, maxScores: 20, agingMs: 20 },
  { maxCalls: 2, maxTokens: 3, maxScores: 5, agingMs: 20 },
  { maxCalls: 64, maxTokens: 256, maxScores: 40, agingMs: 5 },
);
