import fc from 'fast-check';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import type { OutputRequest, SequenceInput } from '../backend.ts';
import { allowedMask } from './handlers.ts';
import type { Step } from './mask-kinds.ts';
import { Random, range, sequence, wholeVocabulary } from './scenario.ts';

/** A pool for the batches of {@link randomSteps}; its last page is reserved for a page that moves. */
export const RANDOM_POOL = { pageSize: 16, pageCount: 48 } as const;

/** One sequence of a random batch; the seed determines the tokens, masks and slots. */
export interface Case {
  readonly seed: number;
  readonly context: number;
  readonly inputs: number;
  readonly mask: 'causal' | 'random' | 'sparse';
  readonly kind: 'tokens' | 'embeds';
  readonly output: 'none' | 'states' | 'top' | 'top and states' | 'allowed';
  readonly writes: boolean;
  /** True when the sequence's context begins with the whole context of the previous sequence. */
  readonly forks: boolean;
  /** Number of times that the sequence reads slots which an earlier sequence of the batch writes. */
  readonly reads: number;
  readonly attention: boolean;
  /** Positions by which a later copy shifts the sequence's keys. */
  readonly shift: number;
}

export const batches: fc.Arbitrary<Case[]> = fc.array(
  fc.record({
    seed: fc.integer(),
    context: fc.oneof(fc.constant(0), fc.nat(40)),
    inputs: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 12 })),
    mask: fc.constantFrom('causal', 'causal', 'random', 'sparse'),
    kind: fc.constantFrom('tokens', 'tokens', 'embeds'),
    output: fc.constantFrom('none', 'states', 'top', 'top', 'top and states', 'allowed'),
    writes: fc.oneof({ weight: 3, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
    forks: fc.boolean(),
    reads: fc.constantFrom(0, 0, 1, 2),
    attention: fc.oneof({ weight: 4, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
    shift: fc.constantFrom(0, 0, 9, -5, 1000),
  }),
  { minLength: 1, maxLength: 5 },
);

/**
 * Steps that fill contexts, run the batch, move the written slots (with and without shifts, and one whole page), and read all of them
 * again. Every slot is written once before it is read; slots are in random order.
 */
export function randomSteps(config: ModelConfig, batch: readonly Case[]): Step[] {
  const { pageSize, pageCount } = RANDOM_POOL;
  const slots = new Random(batch[0].seed).permutation(pageSize * (pageCount - 1));
  let takenCount = 0;
  const take = (count: number) => {
    takenCount += count;
    return slots.slice(takenCount - count, takenCount);
  };
  const fill: SequenceInput[] = [];
  const main: SequenceInput[] = [];
  const copies: Step[] = [];
  const after: SequenceInput[] = [];
  const movedPage = batch[0].inputs % (pageCount - 1);
  for (const each of batch) {
    const random = new Random(each.seed);
    const ownContext = take(each.context);
    if (ownContext.length > 0) {
      fill.push(
        sequence(config, random.tokens(config, ownContext.length), { writes: ownContext, output: { kind: 'none' } }),
      );
    }
    const context = distinct([...forkOf(each, main), ...ownContext, ...readsOf(each, main, random)]);
    const writes = each.writes ? take(each.inputs) : new Uint32Array(0);
    const inputs =
      each.kind === 'tokens' ? random.tokens(config, each.inputs) : random.floats(each.inputs * config.hiddenSize);
    main.push(
      sequence(config, inputs, {
        context,
        positions: Uint32Array.from({ length: each.inputs }, (_, i) => context.length + i + random.below(3)),
        writes,
        mask: maskOf(each, context.length, random),
        output: outputOf(each, config, random),
        ...(each.attention ? { attention: true } : {}),
      }),
    );
    const ownSlots = distinct([...ownContext, ...writes]);
    const copiedSlots = take(ownSlots.length);
    const shifts = new Int32Array(ownSlots.length).map((_, i) => (i % 4 === 3 ? 0 : each.shift));
    const shiftOption = each.shift === 0 ? {} : { shifts };
    copies.push({ kind: 'copy', sources: ownSlots, destinations: copiedSlots, ...shiftOption });
    const movedContext = copiedSlots.map((slot) =>
      Math.floor(slot / pageSize) === movedPage ? (pageCount - 1) * pageSize + (slot % pageSize) : slot,
    );
    after.push(sequence(config, random.tokens(config, 1), { context: movedContext, positions: Uint32Array.of(1010) }));
  }
  return [
    { kind: 'forward', batch: fill },
    { kind: 'forward', batch: main },
    ...copies,
    { kind: 'move-page', from: movedPage, to: pageCount - 1 },
    { kind: 'forward', batch: after },
  ];
}

function forkOf({ forks }: Case, earlier: readonly SequenceInput[]): Uint32Array {
  return (forks ? earlier.at(-1)?.context : undefined) ?? new Uint32Array(0);
}

/** Some of the slots that earlier sequences of the batch write, from their beginning. */
function readsOf({ reads }: Case, earlier: readonly SequenceInput[], random: Random): number[] {
  if (earlier.length === 0) return [];
  return Array.from({ length: reads }, () => {
    const { writes } = earlier[random.below(earlier.length)];
    return [...writes.subarray(0, random.below(writes.length + 1))];
  }).flat();
}

function distinct(slots: readonly number[]): Uint32Array {
  return Uint32Array.from(new Set(slots));
}

function maskOf({ inputs, mask }: Case, context: number, random: Random): Uint8Array | 'causal' {
  if (mask === 'causal') return mask;
  const density = mask === 'random' ? 0.7 : 0.05;
  return Uint8Array.from(range(0, inputs * (context + inputs)), () => (random.next() < density ? 1 : 0));
}

function outputOf({ inputs, output }: Case, config: ModelConfig, random: Random): OutputRequest {
  const rows = 1 + random.below(inputs);
  if (output === 'none') return { kind: 'none' };
  if (output === 'states') return { kind: 'states', rows };
  const top = wholeVocabulary(config, rows);
  if (output === 'allowed') return { ...top, allowed: allowedMask(config, random, rows) };
  return output === 'top' ? top : { ...top, states: true };
}
