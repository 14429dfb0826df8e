import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { PageSpace } from '../../memory/space.ts';
import { faultOf, makeMemory, type TestMemory } from '../../memory/testing/memory.ts';
import type { Mask } from '../../protocol/calls.ts';
import { MAX_LIST } from '../../protocol/wire.ts';
import { NONE, range } from '../../testing/host.ts';
import { ids } from '../../testing/workbench.ts';
import { ForwardPlan, type ForwardRequest, MAX_UNCUT_SCORES } from './plan.ts';

const PAGE_SIZE = 8;
const CONFIG = { contextLength: 16_384, heads: 4 };

/** A request that reads and fills `pages` with tokens from position `start` on. */
function requestFor(pages: Uint32Array, tokens: readonly number[], start = 0): ForwardRequest {
  const positions = range(start, start + tokens.length);
  const rest = {
    inPages: pages,
    outPages: pages,
    mask: undefined,
    rows: 1,
    logits: 1,
    keepsParts: false,
    adapter: undefined,
  };
  return { ...rest, positions, tokens: Uint32Array.from(tokens) };
}

/** Plans a call and computes it: in parts of these numbers of inputs, or by default all inputs at once. */
function compute(space: PageSpace, request: ForwardRequest, ...parts: readonly number[]): ForwardPlan {
  const plan = new ForwardPlan(space, request, CONFIG);
  for (const part of parts.length > 0 ? parts : [plan.remainingInputs]) {
    begin(plan, request, part);
    plan.commit();
  }
  return plan;
}

function begin(plan: ForwardPlan, { tokens }: ForwardRequest, count: number): void {
  const partTokens = (tokens as Uint32Array).subarray(plan.doneInputs, plan.doneInputs + count);
  plan.begin(count, { kind: 'tokens', tokens: partTokens }, { kind: 'none' });
}

/** Positions of a page's slots, and its known tokens. */
function contents(space: PageSpace, pages: Uint32Array) {
  return Array.from(pages, (address) => {
    const { page } = space.peek(address);
    const positions = [...page.positions].map((position, slot) => (page.filled & (1 << slot) ? position : undefined));
    return { positions, known: page.prefix?.known ?? 0, tokens: [...(page.prefix?.tokens ?? [])] };
  });
}

describe('limits of one call', () => {
  const spaceWithTwoFullPages = (kit: TestMemory, maxPages: number) => {
    const space = kit.open({ maxPages });
    space.allocate(1, 2);
    compute(space, requestFor(ids(1, 2), new Array(2 * PAGE_SIZE).fill(5)));
    return space;
  };

  test('the context is at most as large as the inferlet could hold, and a page named twice counts twice', () => {
    // Only three pages (24 slots) fit: in the first case into the inferlet's page limit, in the second case into the pool.
    for (const [pages, maxPages] of [
      [8, 3],
      [3, 8],
    ] as const) {
      const space = spaceWithTwoFullPages(makeMemory({ pages }), maxPages);
      const planOver = (inPages: Uint32Array) => () =>
        new ForwardPlan(space, { ...requestFor(NONE, [7], 20), inPages, tokens: undefined }, CONFIG);
      planOver(ids(1, 2, 2))();
      for (const inPages of [ids(1, 2, 2, 1), new Uint32Array(MAX_LIST).fill(2)]) {
        const { tag, val } = faultOf(planOver(inPages)).error;
        assert.equal(tag, 'limit-exceeded');
        assert.match(val, /more than 24 slots/);
      }
    }
  });

  test('hidden slots count against the limit, because an explicit mask has columns for them', () => {
    const space = spaceWithTwoFullPages(makeMemory({ pages: 4 }), 3);
    space.mask(2, 0xff);
    // The mask shows all slots of the four named pages, and the input.
    const mask: Mask = { runs: ids(0, 4 * PAGE_SIZE + 1), rowLengths: ids(2) };
    const request = { ...requestFor(NONE, [7], 20), tokens: undefined, inPages: ids(2, 2, 2, 2), mask };
    assert.equal(faultOf(() => new ForwardPlan(space, request, CONFIG)).error.tag, 'limit-exceeded');
  });

  test('a refused call brings no page back from swap and evicts nothing', () => {
    const kit = makeMemory({ pages: 4, swapMemoryPages: 8 });
    const [space, other] = [spaceWithTwoFullPages(kit, 2), kit.open({ arrival: -1 })];
    space.waiting = true;
    other.allocate(1, 4);
    const request = { ...requestFor(NONE, [7], 20), tokens: undefined, inPages: ids(1, 2, 2) };
    assert.equal(faultOf(() => new ForwardPlan(space, request, CONFIG)).error.tag, 'limit-exceeded');
    assert.equal(kit.memory.stats().swapsIn, 0);
    assert.equal(other.heldPages, 4);
  });

  test('a call that cannot be cut has a limit of attention scores, and a call that can be cut has none', () => {
    // With four heads, 4096 inputs have exactly the maximum number of scores.
    const inputs = 4097;
    assert.ok(inputs * inputs * CONFIG.heads > MAX_UNCUT_SCORES);
    const space = makeMemory({ pages: 520 }).open();
    space.allocate(1, 513);
    const pages = range(1, 514);
    const positions = range(0, inputs);
    const request = { ...requestFor(pages, []), positions, tokens: undefined };
    const falling = { ...request, positions: positions.slice().reverse() };
    for (const uncut of [{ ...request, outPages: NONE }, falling]) {
      const { tag, val } = faultOf(() => new ForwardPlan(space, uncut, CONFIG)).error;
      assert.equal(tag, 'limit-exceeded');
      assert.match(val, /4097 inputs over 0 slots/);
    }
    assert.equal(new ForwardPlan(space, request, CONFIG).remainingInputs, inputs);
    const shorter = { ...request, outPages: NONE, positions: positions.subarray(1) };
    assert.equal(new ForwardPlan(space, shorter, CONFIG).remainingInputs, inputs - 1);
  });
});

describe('a call that fails after some of its parts', () => {
  const OTHER = Array.from({ length: 30 }, (_, i) => (i * 7) % 50);

  for (const prefixCache of [false, true]) {
    test(`leaves its pages as they were, cached ones too (${prefixCache ? 'with' : 'without'} a cache)`, () => {
      const kit = makeMemory({ pages: 24, prefixCache });
      const earlier = kit.open();
      earlier.allocate(1, 4);
      // The call below finds two cached pages. Its inferlet has computed the first three tokens of the text in a page of its own.
      compute(earlier, requestFor(range(1, 5), OTHER.slice(0, 16)));
      const space = kit.open();
      space.allocate(1, 5);
      const pages = range(1, 6);
      compute(space, requestFor(pages, OTHER.slice(0, 3)));
      const contentsBefore = contents(space, pages);
      const heldBefore = space.heldPages;
      const cachedBefore = kit.memory.prefixes?.size;
      const call = requestFor(pages, OTHER.slice(3), 3);
      const plan = new ForwardPlan(space, call, CONFIG);
      // The cache has 16 of the text's tokens, of which the inferlet has computed three.
      assert.equal(plan.doneInputs, prefixCache ? 16 - 3 : 0);
      begin(plan, call, 5);
      plan.commit();
      begin(plan, call, 6);
      plan.commit();
      begin(plan, call, 2);
      plan.rollback();
      assert.deepEqual(contents(space, pages), contentsBefore);
      assert.equal(space.heldPages, heldBefore);
      const completedPages = prefixCache ? 1 : 0;
      const cachedAfter = kit.memory.prefixes?.size ?? 0;
      assert.equal(cachedAfter, (cachedBefore ?? 0) + completedPages, 'the cache keeps the completed page');
      kit.memory.audit();
      const again = compute(space, call, 3, 2);
      begin(again, call, again.remainingInputs);
      again.commit();
      const done = contents(space, pages);
      again.rollback();
      assert.deepEqual(contents(space, pages), done, 'a rollback leaves a finished call as it is');
      if (prefixCache) assert.equal(kit.memory.prefixes?.size, 3);
      kit.memory.audit();
    });
  }

  test('keeps the inputs of its committed parts, if it is a run', () => {
    const kit = makeMemory({ pages: 8, prefixCache: true });
    const space = kit.open();
    space.allocate(1, 3);
    const pages = range(1, 4);
    const run = { ...requestFor(pages, OTHER.slice(0, 20)), rows: 20, keepsParts: true };
    const plan = new ForwardPlan(space, run, CONFIG);
    for (let i = 0; i < 9; i++) {
      begin(plan, run, 1);
      plan.commit();
    }
    assert.equal(kit.memory.prefixes?.size, 1, 'the cache has the full page at once');
    begin(plan, run, 1);
    plan.rollback();
    assert.deepEqual(
      contents(space, pages).flatMap(({ positions }) => positions.filter((position) => position !== undefined)),
      [...range(0, 9)],
    );
    kit.memory.audit();
  });
});
