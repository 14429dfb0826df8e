import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fillSlot, unfillSlot } from './pool.ts';
import type { PageSpace } from './space.ts';
import type { PrefixRun } from './space-prefix.ts';
import { copyTokens, makeMemory, type TestMemory, type TestMemoryOptions } from './testing/memory.ts';

const PAGE_SIZE = 4;

interface Prepared {
  readonly run: PrefixRun | undefined;
  /** Number of inputs that came from the prefix tree. */
  readonly taken: number;
  fail(): void;
  commit(): void;
}

/** A call over plain tokens, as the handlers prepare it: `pages` are its in-pages and, by default, its out-pages. */
function prepare(
  space: PageSpace,
  pages: readonly number[],
  first: number,
  tokens: readonly number[],
  {
    keep = 1,
    causal = true,
    outPages = pages,
    adapter,
  }: { keep?: number; causal?: boolean; outPages?: readonly number[]; adapter?: string } = {},
): Prepared {
  const positions = Uint32Array.from(tokens, (_, i) => first + i);
  const out = Uint32Array.from(outPages);
  const request = {
    inPages: Uint32Array.from(pages),
    outPages: out,
    positions,
    tokens: Uint32Array.from(tokens),
    keep,
    causal,
    adapter,
  };
  const before = space.memory.prefixes?.stats();
  const expected = space.peekPrefix(request)?.cachedInputs ?? 0;
  assert.deepEqual(space.memory.prefixes?.stats(), before, 'a peek changes no statistics');
  const run = space.beginPrefix(request);
  const taken = run?.cachedInputs ?? 0;
  assert.equal(taken, expected, 'the call takes as many inputs as the peek found');
  const slots = space.emptySlots(out, tokens.length - taken);
  for (const [i, { page, slot }] of slots.entries()) fillSlot(page, slot, positions[taken + i]!);
  run?.reserve(Uint32Array.from(tokens.slice(taken)));
  return {
    run,
    taken,
    commit: () => {
      run?.commit();
      run?.keep();
    },
    fail() {
      for (const { page, slot } of slots) if (!run?.hasGiven(page)) unfillSlot(page, slot);
      run?.revert();
    },
  };
}

/** Addresses of the pages that the remaining inputs see. */
function contextOf({ run }: Prepared): number[] {
  const { text, rest } = run?.context ?? { text: undefined, rest: [] };
  return [...(text?.mappings ?? []), ...rest].map(({ address }) => address);
}

/** Prepares and completes a call. @returns the number of inputs that came from the prefix tree */
function forward(...args: Parameters<typeof prepare>): number {
  const { taken, commit } = prepare(...args);
  commit();
  return taken;
}

function open(
  options: Partial<TestMemoryOptions> & { tenant?: string; maxPages?: number } = {},
  kit: TestMemory = makeMemory({ pages: 32, pageSize: PAGE_SIZE, prefixCache: true, ...options }),
): { kit: TestMemory; space: PageSpace } {
  const space = kit.open(options);
  space.allocate(1, options.maxPages ?? 6);
  return { kit, space };
}

const ADDRESSES = [1, 2, 3, 4, 5, 6];
const TEXT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

test('a text that was computed before is taken, except for the inputs whose output is wanted', () => {
  const { kit, space } = open();
  assert.equal(forward(space, ADDRESSES, 0, TEXT), 0);
  assert.deepEqual(kit.memory.stats().prefix, { lookups: 1, hitTokens: 0, missTokens: 10, evictions: 0 });
  const { space: second } = open({}, kit);
  const prepared = prepare(second, ADDRESSES, 0, TEXT);
  assert.equal(prepared.taken, 9, 'two pages, and a copy of the first slot of the third');
  assert.deepEqual(contextOf(prepared), [1, 2, 3]);
  prepared.commit();
  assert.equal(second.mapping(2).page, space.mapping(2).page);
  assert.notEqual(second.mapping(3).page, space.mapping(3).page);
  assert.deepEqual(kit.memory.stats().prefix, { lookups: 2, hitTokens: 9, missTokens: 11, evictions: 0 });
  const { space: third } = open({}, kit);
  assert.equal(forward(third, ADDRESSES, 0, TEXT.slice(0, 8), { keep: 1 }), 7, 'the last input is wanted');
  const { space: fourth } = open({}, kit);
  assert.equal(forward(fourth, ADDRESSES, 0, TEXT.slice(0, 8), { keep: 0 }), 8, 'nothing is wanted');
  kit.memory.audit();
});

test('a text that continues from the middle of a page takes the rest of that page and the pages after it', () => {
  const { kit, space } = open();
  forward(space, ADDRESSES, 0, TEXT.slice(0, 3));
  forward(space, ADDRESSES, 3, TEXT.slice(3));
  for (const [i, token] of [15, 16].entries()) forward(space, ADDRESSES, 10 + i, [token]);
  const { space: second } = open({}, kit);
  assert.equal(forward(second, ADDRESSES, 0, TEXT.slice(0, 2)), 0);
  const before = second.mapping(1).page;
  const rest = prepare(second, ADDRESSES, 2, [...TEXT.slice(2), 15, 16, 17]);
  assert.equal(rest.taken, 10, 'two inputs to the end of page 1, and two whole pages of four');
  assert.deepEqual(contextOf(rest), [1, 2, 3]);
  rest.commit();
  assert.equal(before.references, 0, "the call's former page 1 is released");
  assert.equal(second.heldPages, 6);
  kit.memory.audit();
});

test('a step that fails leaves the out-pages as they were', () => {
  const { kit, space } = open();
  forward(space, ADDRESSES, 0, TEXT);
  const { space: second } = open({}, kit);
  forward(second, ADDRESSES, 0, TEXT.slice(0, 2));
  const before = second.mapping(1).page;
  const failed = prepare(second, ADDRESSES, 2, TEXT.slice(2));
  assert.equal(failed.taken, 7);
  kit.memory.audit();
  failed.fail();
  kit.memory.audit();
  assert.equal(second.mapping(1).page, before);
  assert.equal(second.mapping(2).page.filled, 0);
  assert.equal(second.mapping(3).page.filled, 0, 'the copied part is gone, too');
  assert.equal(forward(second, ADDRESSES, 2, TEXT.slice(2)), 7, 'the call can be made again');
  second.releaseAll();
  const { space: third } = open({}, kit);
  forward(third, ADDRESSES, 0, TEXT.slice(0, 2));
  prepare(third, ADDRESSES, 2, TEXT.slice(2));
  third.releaseAll();
  space.releaseAll();
  kit.memory.audit();
  assert.equal(kit.memory.pool.counts().owned, 0, 'an inferlet that is ended before its call completes leaves nothing');
});

test('slots that are reserved and not yet computed are neither found in the tree nor added to it', () => {
  const { kit, space } = open();
  const first = prepare(space, ADDRESSES, 0, TEXT);
  const next = prepare(space, ADDRESSES, 10, [15, 16, 17]);
  assert.ok(next.run, 'the next call of the batch goes on with the text');
  assert.equal(kit.memory.prefixes?.size, 0);
  const { space: other } = open({}, kit);
  assert.equal(prepare(other, ADDRESSES, 0, TEXT).taken, 0);
  first.commit();
  assert.equal(kit.memory.prefixes?.size, 2, 'the page that the next call fills as well is not computed');
  next.fail();
  assert.equal(kit.memory.prefixes?.size, 2);
  assert.equal(forward(space, ADDRESSES, 10, [20, 21]), 0);
  const { space: third } = open({}, kit);
  assert.equal(forward(third, ADDRESSES, 0, [...TEXT, 15, 16, 17]), 10, 'the inputs of the failed call are not found');
  const { space: fourth } = open({}, kit);
  assert.equal(forward(fourth, ADDRESSES, 0, [...TEXT, 20, 21, 22]), 12);
});

test('a call after reserved slots takes nothing from the tree, even if an earlier call kept their page as known text', () => {
  const { kit, space } = open({ pages: 64 });
  const { space: other } = open({}, kit);
  forward(other, ADDRESSES, 0, [...TEXT.slice(0, 8), 30, 31, 32, 33]);
  const first = prepare(space, ADDRESSES, 0, TEXT);
  const next = prepare(space, ADDRESSES, 10, [15, 16]);
  first.commit();
  assert.equal(prepare(space, ADDRESSES, 12, [30, 31, 32, 33, 34]).taken, 0, 'the tree has no page after page 3');
  next.commit();
  kit.memory.audit();
});

test('copies of a page that is not full are continued independently', () => {
  const { kit, space } = open();
  forward(space, ADDRESSES, 0, TEXT);
  space.share(Uint32Array.of(1, 2, 3), 20);
  assert.equal(forward(space, ADDRESSES, 10, [30, 31, 32]), 0);
  assert.equal(forward(space, [20, 21, 22, 5], 10, [40, 41, 42]), 0);
  const { space: second } = open({}, kit);
  assert.equal(forward(second, ADDRESSES, 0, [...TEXT, 30, 31, 32]), 12);
  assert.equal(second.mapping(3).page, space.mapping(3).page);
  const { space: third } = open({}, kit);
  assert.equal(forward(third, ADDRESSES, 0, [...TEXT, 40, 41, 42]), 12);
  assert.equal(third.mapping(3).page, space.mapping(22).page);
});

test('a hit may end inside a page: the equal slots are copied, whether the page is full, partly filled or continued since', () => {
  const { kit, space } = open({ pages: 64 });
  const fresh = (): PageSpace => open({}, kit).space;
  forward(space, ADDRESSES, 0, TEXT);
  for (const [i, token] of [15, 16, 17].entries()) forward(space, ADDRESSES, 10 + i, [token]);
  const other = prepare(fresh(), ADDRESSES, 0, [...TEXT.slice(0, 9), 99, 98]);
  assert.equal(other.taken, 9, 'as far as the texts are the same');
  other.commit();
  const last = fresh();
  assert.equal(forward(last, ADDRESSES, 0, [...TEXT.slice(0, 9), 99, 97]), 10, 'the page of the latest text');
  assert.notEqual(last.mapping(3).page, space.mapping(3).page);
  assert.equal(forward(fresh(), ADDRESSES, 0, [...TEXT, 15, 16, 17]), 12, 'a whole page where there is one');
  assert.equal(forward(fresh(), ADDRESSES, 0, [50, ...TEXT.slice(1)]), 0);
  kit.memory.audit();
});

test('the copied beginning of a page becomes part of a new page of the text, and is removed when its call fails', () => {
  const { kit, space } = open({ pages: 64 });
  forward(space, ADDRESSES, 0, TEXT);
  const { space: second } = open({}, kit);
  const failed = prepare(second, ADDRESSES, 0, [...TEXT.slice(0, 9), 40, 41, 42]);
  assert.equal(failed.taken, 9);
  failed.fail();
  assert.equal(second.mapping(3).page.filled, 0);
  assert.equal(second.mapping(3).page.prefix, undefined);
  assert.equal(forward(second, ADDRESSES, 0, [...TEXT.slice(0, 9), 40, 41, 42, 43]), 9);
  const { space: third } = open({}, kit);
  assert.equal(
    forward(third, ADDRESSES, 0, [...TEXT.slice(0, 9), 40, 41, 42, 43]),
    12,
    'the page that began as a copy is whole',
  );
  kit.memory.audit();
});

test('when a call fails, other calls keep the pages that it gave to the tree, and its own out-pages are empty again', () => {
  const { kit, space } = open({ pages: 64 });
  const first = prepare(space, ADDRESSES, 0, TEXT.slice(0, 9));
  first.run?.give();
  assert.equal(kit.memory.prefixes?.size, 2);
  const { space: second } = open({}, kit);
  assert.equal(forward(second, ADDRESSES, 0, TEXT), 8);
  first.fail();
  kit.memory.audit();
  for (const address of ADDRESSES) assert.equal(space.mapping(address).page.filled, 0);
  assert.equal(space.heldPages, 6);
  assert.equal(forward(space, ADDRESSES, 0, TEXT), 9, 'the call can be made again');
  const third = open({}, kit).space;
  forward(third, ADDRESSES, 0, [70, 71]);
  const inside = prepare(third, ADDRESSES, 2, [72, 73, 74, 75, 76, 77]);
  inside.run?.give();
  assert.equal(kit.memory.prefixes?.size, 2, 'a page that was begun before the call is not given before its end');
  inside.fail();
  assert.equal(third.mapping(1).page.filled, 3);
  kit.memory.audit();
});

test('when the device fails to copy the beginning of a page, the out-pages stay as they were', () => {
  const { kit, space } = open({ pages: 64 });
  forward(space, ADDRESSES, 0, TEXT);
  const { space: second } = open({}, kit);
  forward(second, ADDRESSES, 0, [70, 71]);
  forward(second, [4, 5, 6], 0, TEXT.slice(0, 2));
  const before = ADDRESSES.map((address) => second.mapping(address).page);
  kit.device.copySlots = () => {
    throw new Error('no copy');
  };
  assert.throws(() => prepare(second, [4, 5, 6], 2, TEXT.slice(2)), /no copy/);
  for (const [i, address] of ADDRESSES.entries()) {
    const { page } = second.mapping(address);
    if (before[i]!.filled > 0) assert.equal(page, before[i]);
    else assert.equal(page.filled, 0);
  }
  assert.equal(second.heldPages, 6);
  kit.memory.audit();
});

test('when a call fails, other calls keep a whole page that it copied and then gave to the tree', () => {
  const { kit, space } = open({ pages: 40 });
  forward(space, ADDRESSES, 0, TEXT.slice(0, 6));
  const { space: second } = open({}, kit);
  forward(second, ADDRESSES, 0, TEXT.slice(0, 8));
  forward(space, ADDRESSES, 6, TEXT.slice(6, 7));
  forward(space, ADDRESSES, 7, TEXT.slice(7, 8));
  assert.notEqual(space.mapping(2).page, second.mapping(2).page, 'two pages hold the same, and one is in the tree');
  second.releaseAll();
  second.allocate(1, kit.memory.pool.free + 1);
  second.releaseAll();
  assert.equal(kit.memory.prefixes?.size, 1, 'the tree has lost the second page');
  const { space: third } = open({}, kit);
  const giver = prepare(third, ADDRESSES, 0, [...TEXT.slice(0, 8), 20, 21, 22, 23, 24]);
  assert.equal(giver.taken, 8, 'the other page is copied');
  giver.run?.give();
  const { space: fourth } = open({}, kit);
  assert.equal(forward(fourth, ADDRESSES, 0, [...TEXT.slice(0, 8), 20, 21, 22, 23, 25]), 12);
  giver.fail();
  for (const address of [1, 2, 3]) assert.equal(fourth.mapping(address).page.filled, 0b1111);
  for (const address of ADDRESSES) assert.equal(third.mapping(address).page.filled, 0);
  kit.memory.audit();
});

test('an inferlet holds the pages of a repeated text once, and stays within its limit when a call fails', () => {
  const { kit, space } = open({ maxPages: 6 });
  forward(space, [1, 2, 3], 0, TEXT);
  const again = prepare(space, [4, 5, 6], 0, TEXT);
  assert.equal(again.taken, 9);
  assert.equal(space.heldPages, 6, 'pages that a failed call gets back still count');
  again.fail();
  assert.equal(space.heldPages, 6);
  assert.equal(forward(space, [4, 5, 6], 0, TEXT), 9);
  assert.equal(space.heldPages, 4);
  kit.memory.audit();
});

test('a call that does not continue a plain text takes nothing from the tree and gives nothing to it', () => {
  const { kit, space } = open({ pages: 64 });
  forward(space, ADDRESSES, 0, TEXT);
  const fresh = (): PageSpace => open({}, kit).space;
  assert.equal(prepare(fresh(), ADDRESSES, 1, TEXT).run, undefined, 'positions skip');
  assert.equal(prepare(fresh(), ADDRESSES, 0, TEXT, { causal: false }).run, undefined, 'a mask');
  const masked = fresh();
  masked.mask(2, 1);
  assert.equal(prepare(masked, ADDRESSES, 0, TEXT).run, undefined, 'an out-page with hidden slots');
  const elsewhere = fresh();
  forward(elsewhere, [1], 0, TEXT.slice(0, 2));
  assert.equal(
    prepare(elsewhere, [1], 2, TEXT.slice(2), { outPages: [2, 3] }).run,
    undefined,
    'not where the text ends',
  );
  const omitted = fresh();
  forward(omitted, [1, 2], 0, TEXT.slice(0, 8));
  assert.equal(prepare(omitted, [2], 4, TEXT.slice(4), { outPages: [3, 4] }).run, undefined, 'a page left out');
  const copied = fresh();
  forward(copied, [1, 2], 0, TEXT.slice(0, 8));
  copied.copySlots({ source: 2, sourceOffset: 0, destination: 1, destinationOffset: 0, count: 1, shift: 0 });
  assert.equal(prepare(copied, ADDRESSES, 8, TEXT.slice(8)).run, undefined, 'a page written by a copy');
  const patched = fresh();
  forward(patched, [1], 0, TEXT.slice(0, 2));
  const [slot] = patched.emptySlots(Uint32Array.of(1), 1);
  fillSlot(slot!.page, slot!.slot, 9);
  assert.equal(prepare(patched, ADDRESSES, 2, TEXT.slice(2)).run, undefined, 'a slot that no token accounts for');
  const extended = fresh();
  forward(extended, [1], 0, TEXT.slice(0, 2));
  const tokens = { sources: Uint32Array.of(1), indices: Uint32Array.of(0), positions: new Uint32Array(0) };
  copyTokens(extended, { ...tokens, destinations: Uint32Array.of(1) });
  assert.equal(extended.peek(1).page.prefix, undefined);
  assert.equal(forward(fresh(), ADDRESSES, 0, TEXT), 9, 'the page in the tree is unchanged');
  assert.equal(kit.memory.prefixes?.size, 2);
  kit.memory.audit();
});

test('a tenant finds no pages of another tenant, even after an import', () => {
  const { kit, space } = open({ tenant: 'a' });
  forward(space, ADDRESSES, 0, TEXT);
  const { space: stranger } = open({ tenant: 'b' }, kit);
  assert.equal(forward(stranger, ADDRESSES, 0, TEXT), 0);
  const snapshot = space.snapshot(Uint32Array.of(1, 2));
  const { space: importer } = open({ tenant: 'c' }, kit);
  importer.importSnapshot(50, snapshot);
  assert.equal(prepare(importer, [50, 51], 8, [1, 2, 3], { outPages: [1] }).run, undefined);
  assert.equal(kit.memory.prefixes?.size, 4);
});

test('pages that an adapter computed are found only by calls with that adapter', () => {
  const { kit, space } = open({ tenant: 'a' });
  const fresh = () => open({ tenant: 'a' }, kit).space;
  forward(space, ADDRESSES, 0, TEXT, { adapter: 'x' });
  assert.equal(forward(fresh(), ADDRESSES, 0, TEXT), 0);
  assert.equal(forward(fresh(), ADDRESSES, 0, TEXT, { adapter: 'y' }), 0);
  assert.equal(forward(fresh(), ADDRESSES, 0, TEXT, { adapter: 'x' }), 9);
  assert.equal(forward(fresh(), ADDRESSES, 0, TEXT), 9);
  assert.equal(kit.memory.prefixes?.size, 6);
  const mixed = fresh();
  forward(mixed, ADDRESSES, 0, TEXT.slice(0, 4));
  assert.equal(
    prepare(mixed, ADDRESSES, 4, TEXT.slice(4), { adapter: 'x' }).run,
    undefined,
    'a text that began without the adapter is not continued with it',
  );
  assert.equal(kit.memory.prefixes?.size, 6);
  kit.memory.audit();
});

test('a hit adds no held pages, and a swapped-out page comes back in the frame that the replaced page gives up', () => {
  const { kit, space } = open({ pages: 8, swapMemoryPages: 8, maxPages: 3 });
  forward(space, [1, 2, 3], 0, TEXT);
  space.waiting = true;
  const { space: second } = open({ maxPages: 6 }, kit);
  assert.equal(kit.memory.pool.free, 0);
  assert.ok(space.peek(1).page.frame < 0);
  assert.equal(kit.memory.pool.counts().swappedOut, 1);
  assert.equal(forward(second, ADDRESSES, 0, TEXT), 9);
  assert.ok(space.peek(1).page.frame >= 0);
  assert.equal(kit.memory.stats().swapsIn, 1);
  assert.equal(second.heldPages, 6);
  kit.memory.audit();
});
