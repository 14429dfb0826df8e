import { Random } from '#test/harness/random.ts';
import type { Sampler } from '../../protocol/client.ts';
import type { ExportControl } from '../../protocol/operations.ts';

/** One part of an inferlet's life; a story has several, in order. */
export type Chapter =
  | { readonly kind: 'prefill'; readonly tokens: readonly number[] }
  | { readonly kind: 'steps' | 'run' | 'embeds' | 'fork'; readonly count: number }
  | { readonly kind: 'copy' }
  /** If `exports` is true, exports the pages under the name and then makes the call `control`. Otherwise makes the call, then removes the name. */
  | { readonly kind: 'hint'; readonly name: string; readonly exports: boolean; readonly control: Hint }
  | { readonly kind: 'wait'; readonly turns: number }
  | { readonly kind: 'child'; readonly tokens: readonly number[]; readonly count: number };

/** A call that controls an export, without the export's name. */
type Hint = ExportControl extends infer Each ? (Each extends ExportControl ? Omit<Each, 'name'> : never) : never;

/** The life of one inferlet. */
export interface Story {
  readonly chapters: readonly Chapter[];
  readonly sampler: Sampler;
  readonly tenant: string;
  /** Turns of the event loop before the inferlet is opened. */
  readonly delay: number;
  /** Turns of the event loop until the inferlet is closed; undefined when it stays open to the end of the plot. */
  readonly closeAfter: number | undefined;
}

const EXPORTS = ['a', 'b', 'c'];
const HINTS: readonly Hint[] = [
  { op: 'export-residency' },
  { op: 'pin-export', leaseMs: 5 },
  { op: 'pin-export', leaseMs: 60_000 },
  { op: 'pin-export', leaseMs: 3_600_000 },
  { op: 'unpin-export' },
  { op: 'retain-export', nextUseMs: 100 },
  { op: 'prefetch-export' },
  { op: 'prefetch-export' },
  { op: 'demote-export', tier: 'memory' },
];

/** Inferlets that run at the same time, and the settings of their host. */
export interface Plot {
  readonly stories: readonly Story[];
  readonly pageCount: number;
  readonly swap: 'plenty' | 'half' | 'failing disk';
  readonly prefixCache: boolean;
  readonly maxBatchTokens: number;
  readonly ahead: boolean;
}

/** Makes a plot whose inferlets together want several times the pool. Equal seeds give equal plots. */
export function plotOf(seed: number): Plot {
  const dice = new Random(seed);
  const text = (length: number): number[] => Array.from({ length }, () => dice.below(96));
  const common = text(30);
  const mayClose = dice.below(3) === 0;
  const swap = (['plenty', 'plenty', 'half', 'failing disk'] as const)[dice.below(4)]!;
  // Without enough swap, a plot has no `hint` (cases 8 and 9): exports would stay on the device and might leave too few pages for a story.
  const kinds = swap === 'plenty' ? 11 : 8;
  const chapter = (): Chapter => {
    const count = 1 + dice.below(12);
    switch (dice.below(kinds)) {
      case 0:
        return { kind: 'prefill', tokens: text(1 + dice.below(40)) };
      case 1:
      case 2:
        return { kind: 'run', count: count * 2 };
      case 3:
        return { kind: 'embeds', count: 1 + dice.below(3) };
      case 4:
        return { kind: 'fork', count: 1 + dice.below(5) };
      case 5:
        return { kind: 'copy' };
      case 6:
        return { kind: 'wait', turns: dice.below(20) };
      case 7:
        return { kind: 'child', tokens: text(1 + dice.below(20)), count };
      case 8:
      case 9: {
        const [name, control] = [EXPORTS[dice.below(EXPORTS.length)]!, HINTS[dice.below(HINTS.length)]!];
        return { kind: 'hint', name, exports: dice.below(2) === 0, control };
      }
      default:
        return { kind: 'steps', count };
    }
  };
  return {
    stories: Array.from({ length: 12 + dice.below(14) }, (_, i) => ({
      chapters: [
        { kind: 'prefill', tokens: dice.below(2) ? [...common, ...text(1 + dice.below(8))] : text(1 + dice.below(40)) },
        ...Array.from({ length: 2 + dice.below(5) }, chapter),
      ],
      sampler: { temperature: dice.below(2), topK: 0, topP: 1, minP: 0, seed: dice.below(1000) },
      tenant: `tenant-${dice.below(2)}`,
      delay: dice.below(2) * dice.below(12),
      closeAfter: i > 0 && mayClose && dice.below(3) === 0 ? dice.below(60) : undefined,
    })),
    pageCount: 40 + dice.below(20),
    swap,
    prefixCache: dice.below(2) === 0,
    maxBatchTokens: [20, 48, 512][dice.below(3)]!,
    ahead: swap === 'plenty' && dice.below(2) === 0,
  };
}
