import fc from 'fast-check';

/**
 * One call of a batch. `who` is the index of the inferlet. Numbers choose among the pages that the inferlet has at that time (modulo their count),
 * so that an operation still has a meaning after fast-check has dropped earlier operations.
 */
export type WriteCall =
  /** Continues the inferlet's text. There are few tokens, so that different inferlets often have equal prefixes. */
  | {
      readonly kind: 'text';
      readonly who: number;
      readonly tokens: readonly number[];
      /** Number of last inputs that must be computed. */
      readonly keep: number;
      readonly bend: Bend;
      readonly pick: number;
      /** 0 for the inferlet's usual adapter; other numbers select others (`adapterOf` in `world.ts`). */
      readonly adapter: number;
    }
  /** Reads and writes any pages of the inferlet, at positions from `first` on. */
  | {
      readonly kind: 'forward';
      readonly who: number;
      readonly from: readonly number[];
      readonly into: readonly number[];
      readonly tokens: readonly number[];
      readonly first: number;
      readonly adapter: number;
    };

/**
 * A change that gives a call another context than the text has: a page left out (`omit`), a page moved to the front (`reorder`), new pages
 * begun before the last one is full (`elsewhere`), or positions that exist already (`overlap`).
 */
export type Bend = 'none' | 'omit' | 'reorder' | 'elsewhere' | 'overlap';

/** Hints about an export: when its pages will be used, or where they should be. `pass` moves the clock on by `ms`. */
export type LeaseOperation =
  | { readonly kind: 'pin' | 'expect'; readonly who: number; readonly name: number; readonly ms: number }
  | { readonly kind: 'unpin' | 'prefetch' | 'demote'; readonly who: number; readonly name: number }
  | { readonly kind: 'pass'; readonly who: number; readonly ms: number };

export type Operation =
  | { readonly kind: 'allocate'; readonly who: number; readonly count: number }
  | { readonly kind: 'free' | 'share'; readonly who: number; readonly picks: readonly number[] }
  | { readonly kind: 'mask'; readonly who: number; readonly pick: number; readonly bits: number }
  /** Begins a new text, or replaces the inferlet's text by a copy with other addresses. */
  | { readonly kind: 'new-text' | 'fork-text'; readonly who: number }
  | {
      readonly kind: 'batch';
      readonly calls: readonly WriteCall[];
      /** Outcome of the step. `killed` ends the first call's inferlet once all calls of the batch are prepared. */
      readonly fate: 'done' | 'failed' | 'killed';
    }
  | {
      readonly kind: 'copy-slots';
      readonly who: number;
      readonly from: number;
      readonly to: number;
      readonly fromSlot: number;
      readonly toSlot: number;
      readonly count: number;
      readonly shift: number;
    }
  | {
      readonly kind: 'copy-tokens';
      readonly who: number;
      readonly from: readonly number[];
      readonly into: readonly number[];
      readonly indices: readonly number[];
      /** First new position; undefined keeps the old ones. */
      readonly renumber: number | undefined;
    }
  | { readonly kind: 'export'; readonly who: number; readonly picks: readonly number[]; readonly name: number }
  /** `reload` drops an export from memory and makes its pages again from their bytes, as from disk. */
  | { readonly kind: 'import' | 'reload'; readonly who: number; readonly name: number }
  | { readonly kind: 'unexport'; readonly name: number }
  | LeaseOperation
  | { readonly kind: 'waiting' | 'busy'; readonly who: number; readonly value: boolean }
  | { readonly kind: 'end'; readonly who: number };

/** Number of concurrent inferlets. */
export const ACTORS = 6;
/** Slots of a page. */
export const PAGE_SIZE = 4;

const who = fc.nat({ max: ACTORS - 1 });
const pick = fc.nat({ max: 1000 });
const picks = fc.array(pick, { maxLength: 4 });
// Mostly one token, so that texts of different inferlets often share long prefixes.
const token = fc.oneof({ weight: 9, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.constant(1) });
const tokens = fc.array(token, { minLength: 1, maxLength: 11 });
const name = fc.nat({ max: 3 });
const ms = fc.integer({ min: 1, max: 200 });

const bend = fc.oneof(
  { weight: 9, arbitrary: fc.constant('none' as const) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('omit' as const, 'reorder' as const, 'elsewhere' as const, 'overlap' as const),
  },
);
// Mostly an inferlet's usual adapter, so that calls also find texts of the same adapter.
const adapter = fc.oneof({ weight: 9, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat({ max: 2 }) });
const text = fc.record({
  kind: fc.constant('text' as const),
  who,
  tokens,
  keep: fc.nat({ max: 2 }),
  bend,
  pick,
  adapter,
});
const forward = fc.record({
  kind: fc.constant('forward' as const),
  who,
  from: picks,
  into: picks,
  tokens,
  first: fc.nat({ max: 20 }),
  adapter,
});
const call: fc.Arbitrary<WriteCall> = fc.oneof({ weight: 3, arbitrary: text }, { weight: 1, arbitrary: forward });

const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('allocate' as const), who, count: fc.nat({ max: 4 }) }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('free' as const, 'share' as const), who, picks }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('mask' as const), who, pick, bits: fc.nat({ max: 2 ** PAGE_SIZE }) }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('new-text' as const, 'fork-text' as const), who }) },
  {
    weight: 16,
    arbitrary: fc.record({
      kind: fc.constant('batch' as const),
      calls: fc.array(call, { minLength: 1, maxLength: 4 }),
      fate: fc.constantFrom('done' as const, 'done' as const, 'done' as const, 'failed' as const, 'killed' as const),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('copy-slots' as const),
      who,
      from: pick,
      to: pick,
      fromSlot: fc.nat({ max: PAGE_SIZE }),
      toSlot: fc.nat({ max: PAGE_SIZE }),
      count: fc.nat({ max: PAGE_SIZE }),
      shift: fc.oneof(fc.constant(0), fc.integer({ min: -4, max: 40 })),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('copy-tokens' as const),
      who,
      from: picks,
      into: picks,
      indices: fc.array(fc.nat({ max: 9 }), { maxLength: 6 }),
      renumber: fc.option(fc.nat({ max: 50 }), { nil: undefined }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('export' as const), who, picks, name }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constantFrom('import' as const, 'import' as const, 'reload' as const), who, name }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('unexport' as const), name }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constantFrom('pin' as const, 'pin' as const, 'expect' as const), who, name, ms }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('unpin' as const, 'prefetch' as const, 'prefetch' as const, 'demote' as const),
      who,
      name,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pass' as const), who, ms }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom('waiting' as const, 'waiting' as const, 'busy' as const),
      who,
      value: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('end' as const), who }) },
);

export interface Setting {
  readonly pages: number;
  readonly maxPages: number;
  readonly prefixCache: boolean;
  readonly rotates: boolean;
  /** Maximum swapped-out pages in host memory. */
  readonly swapMemoryPages: number;
  /** Maximum swapped-out pages on disk. */
  readonly swapDiskPages: number;
  /** True when inferlets in pairs share a place in the scheduler's order, as children of one root do. */
  readonly families: boolean;
  readonly tenants: number;
  /** Maximum pages of a tenant; null for no limit. */
  readonly tenantPages: number | null;
}

export const setting: fc.Arbitrary<Setting> = fc.record({
  pages: fc.integer({ min: 6, max: 60 }),
  maxPages: fc.integer({ min: 4, max: 40 }),
  prefixCache: fc.boolean(),
  rotates: fc.boolean(),
  swapMemoryPages: fc.constantFrom(0, 2, 1000),
  swapDiskPages: fc.constantFrom(0, 3),
  families: fc.boolean(),
  tenants: fc.constantFrom(1, 1, 2),
  tenantPages: fc.option(fc.integer({ min: 4, max: 40 }), { freq: 1 }),
});

/** Schedules of exactly `length` operations. */
export function schedules(length: number): fc.Arbitrary<readonly Operation[]> {
  return fc.array(operation, { minLength: length, maxLength: length });
}
