import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { MemoryOrder } from '#scheduler/policies/preemption.ts';
import { seeded } from '#test/harness/random.ts';
import type { DeviceMemory } from './device-memory.ts';
import { CallHeld } from './fault.ts';
import { fillSlot, type PageAccount, PRESENT_MS } from './pool.ts';
import { FrameGain, framesGained, type PageHolding } from './pressure.ts';
import type { PageSpace } from './space.ts';
import { cacheText, makeMemory, type TestMemoryOptions } from './testing/memory.ts';

const FAMILIES = 500;
const PAGES = 10_000;
/** Maximum traversals of families' pages in one claim or one choice: 20 for each family, on average. */
const MAX_READS = 20 * FAMILIES;
/** Maximum reads of accounts, comparisons and traversals of pages in one decision among as many tenants: 40 for each. */
const MAX_TENANT_READS = 40 * FAMILIES;
const TICKET = { place: 'memory' } as const;
const AMPLE_SWAP = { swapMemoryPages: 100_000, ended: () => assert.fail('swap has room') };

/** A pool with one inferlet in each of many families. `reads` counts the traversals of watched inferlets' pages. */
function crowd(options: Pick<TestMemoryOptions, 'swapMemoryPages' | 'ended'>) {
  const { memory, open } = makeMemory({ pages: PAGES, preempt: () => undefined, ...options });
  const spaces = Array.from({ length: FAMILIES }, () => open());
  let count = 0;
  const watch = (space: PageSpace): void => {
    const { held } = space;
    Object.defineProperty(space, 'held', {
      get() {
        count += 1;
        return held;
      },
    });
  };
  return { memory, spaces, watch, reads: () => count };
}

test('a claim that preempts hundreds of families counts the pages of each only a few times', () => {
  const { memory, spaces, watch, reads } = crowd(AMPLE_SWAP);
  for (const space of spaces.slice(1)) {
    space.allocate(0, PAGES / FAMILIES);
    watch(space);
  }
  // The oldest takes half of all pages.
  spaces[0]?.allocate(0, PAGES / 2);
  assert.ok(memory.relief.stats().preemptions > FAMILIES / 3);
  assert.ok(reads() < MAX_READS, `the pages of ${FAMILIES} families were counted ${reads()} times`);
  memory.audit();
});

test('a search among hundreds of preempted families that do not fit counts the pages of each only a few times', () => {
  const { memory, spaces, watch, reads } = crowd(AMPLE_SWAP);
  spaces[0]?.allocate(0, PAGES / 2);
  for (const [i, space] of spaces.entries()) {
    const { contender } = space;
    watch(space);
    if (i === 0) continue;
    // Only the newest family fits.
    contender.wanted = i === FAMILIES - 1 ? 1 : PAGES - i;
    contender.heldCalls = 1;
    contender.leave();
  }
  assert.equal(memory.relief.next(), spaces.at(-1)?.contender);
  assert.ok(reads() < MAX_READS, `the pages of ${FAMILIES} families were counted ${reads()} times`);
  assert.equal(memory.relief.next(), undefined);
  memory.audit();
});

test('a claim that ends hundreds of inferlets counts the pages of each only a few times', () => {
  const { memory, spaces, watch, reads } = crowd({ swapMemoryPages: 100 });
  for (const space of spaces.slice(1)) {
    space.allocate(0, PAGES / FAMILIES);
    for (const page of space.held.keys()) page.filled = 1;
    watch(space);
  }
  spaces[0]?.allocate(0, PAGES / 2);
  assert.ok(memory.relief.stats().terminations > FAMILIES / 3);
  assert.ok(reads() < MAX_READS, `the pages of ${FAMILIES} inferlets were counted ${reads()} times`);
  memory.audit();
});

/** A pool with one inferlet of each of many tenants. `readsOf` counts what a decision reads: accounts, excesses over shares, and pages of inferlets. */
function manyTenants(t: TestContext) {
  const clock = { nowMs: 0 };
  const now = (): number => clock.nowMs;
  const { memory, open } = makeMemory({
    pages: PAGES,
    prefixCache: true,
    now,
    preempt: () => undefined,
    ...AMPLE_SWAP,
  });
  const spaces = Array.from({ length: FAMILIES }, (_, i) => open({ tenant: `tenant ${i}` }));
  let count = 0;
  const watch = (target: object, property: string, read: () => unknown): void => {
    Object.defineProperty(target, property, {
      get() {
        count += 1;
        return read();
      },
    });
  };
  for (const space of spaces) {
    const { account, held } = space;
    watch(account, 'frames', () => account.owned + account.cached);
    watch(space, 'held', () => held);
  }
  const { excess } = MemoryOrder.prototype;
  MemoryOrder.prototype.excess = function (account) {
    count += 1;
    return excess.call(this, account);
  };
  t.after(() => {
    MemoryOrder.prototype.excess = excess;
  });
  const readsOf = (decision: () => void): number => {
    const before = count;
    decision();
    const reads = count - before;
    assert.ok(reads < MAX_TENANT_READS, `a decision among ${FAMILIES} tenants made ${reads} reads`);
    return reads;
  };
  const fill = (space: PageSpace, first: number, pages: number): void => {
    space.allocate(first, pages);
    for (let i = 0; i < pages; i++) fillSlot(space.peek(first + i).page, 0, 0);
  };
  return { memory, open, spaces, clock, readsOf, fill };
}

test('with hundreds of tenants that hold and want their shares, no decision reads all tenants for each of them', (t) => {
  const { memory, spaces, readsOf, fill } = manyTenants(t);
  const { relief } = memory;
  for (const space of spaces) fill(space, 0, PAGES / FAMILIES);
  for (const space of spaces.slice(FAMILIES / 2)) {
    readsOf(() => assert.throws(() => space.allocate(100, 1), CallHeld));
    space.contender.heldCalls = 1;
  }
  readsOf(() => assert.equal(relief.next(), undefined));
  readsOf(() => assert.equal(relief.isDue, false));
  relief.noteChange();
  readsOf(() => assert.equal(relief.isDue, true));
  readsOf(() => assert.equal(relief.next(), undefined));
  readsOf(() => assert.equal(relief.stalled(), true));
  readsOf(() => assert.notEqual(relief.next(), undefined));
  memory.audit();
});

test('beside a hoarder, the claims and returns of hundreds of tenants within their shares do not read all tenants for each', (t) => {
  const { memory, open, spaces, readsOf, fill } = manyTenants(t);
  const hoarders = Array.from({ length: 4 }, () => open({ tenant: 'hoarder' }));
  for (const hoarder of hoarders) fill(hoarder, 0, PAGES / hoarders.length);
  for (const space of spaces) readsOf(() => fill(space, 0, 5));
  assert.ok(memory.relief.stats().swapsOut >= 5 * FAMILIES);
  for (const { contender } of [...spaces, ...hoarders]) {
    contender.leave();
    contender.heldCalls = 1;
    contender.wanted = 1;
  }
  for (let i = 0; i < 20; i++) readsOf(() => assert.notEqual(memory.relief.next(), undefined));
  readsOf(() => memory.relief.isDue);
  memory.audit();
});

test('a claim that evicts cached pages of hundreds of tenants does not read all tenants for each page', (t) => {
  const { memory, open, spaces, clock, readsOf } = manyTenants(t);
  for (const [i, space] of spaces.entries()) {
    cacheText(space, 10 + (i % 10));
    memory.closeSpace(space);
  }
  clock.nowMs = PRESENT_MS;
  const claimant = open({ tenant: 'claimant' });
  readsOf(() => claimant.allocate(0, PAGES / 2));
  const cached = spaces.map(({ account }) => account.cached);
  assert.ok(Math.max(...cached) - Math.min(...cached) <= 1, 'all tenants are left with equally many');
  memory.audit();
});

test('pages that a step uses stay on the device when their family is preempted', () => {
  const { memory, open } = makeMemory({ pages: 16, preempt: () => undefined, ...AMPLE_SWAP });
  const [older, newer] = [open(), open()];
  newer.allocate(0, 10);
  const pages = [...newer.held.keys()];
  newer.pins++;
  assert.throws(() => older.allocate(0, 8), CallHeld);
  assert.ok(pages.every(({ frame }) => frame >= 0));
  newer.pins--;
  older.contender.return();
  older.allocate(0, 8);
  assert.ok(pages.some(({ frame }) => frame < 0));
  memory.audit();
});

test('`FrameGain`, updated holder by holder, equals `framesGained` of all holders at once', () => {
  const random = seeded(5);
  const { memory, spaces } = openSharingSpaces(random);
  memory.audit();
  // Some pages are in swap. When their holders end, their places are free again, unless `reusable` is false.
  for (const page of (spaces[0] as PageSpace).held.keys()) if (page.filled) memory.pool.swapOut(page, TICKET);
  for (const pages of [0, 7, 1000]) {
    const room = { pages, reusable: () => pages > 0 };
    const takeable = ({ tenant }: PageAccount): number => (tenant === 'small' ? 12 : Number.POSITIVE_INFINITY);
    const gain = new FrameGain({ spaces: [], snapshots: new Map(), takeable }, room);
    const [idle, ended] = [new Set<PageHolding>(), new Set<PageHolding>()];
    for (let i = 0; i < 300; i++) {
      const space = spaces[random(spaces.length)] as PageSpace;
      if (random(2)) {
        // An inferlet counts as ended, or no longer as ended.
        const ends = !ended.delete(space);
        if (ends) ended.add(space);
        gain.changeEnded(space, ends ? 1 : -1, idle.has(space));
      } else if (!ended.has(space)) {
        const isIdle = !idle.delete(space);
        if (isIdle) idle.add(space);
        gain.changeIdle(space, isIdle ? 1 : -1);
      }
      const holders = { spaces: [...idle], snapshots: new Map(), takeable };
      assert.equal(gain.frames, framesGained([...ended], holders, room));
    }
  }
});

/** Spaces that share some of their pages; half of the pages are filled. */
function openSharingSpaces(random: (below: number) => number): { memory: DeviceMemory; spaces: PageSpace[] } {
  const { memory, open } = makeMemory({ pages: 200, ended: () => assert.fail() });
  const spaces = Array.from({ length: 12 }, (_, i) => open({ tenant: i % 3 === 0 ? 'small' : 'large' }));
  for (const [i, space] of spaces.entries()) {
    space.allocate(0, 10);
    for (const page of space.held.keys()) if (random(2)) page.filled = 1;
    const other = spaces[random(i + 1)] as PageSpace;
    if (other === space) continue;
    const snapshot = other.snapshot(Uint32Array.of(1, 2, 3));
    space.importSnapshot(20, snapshot);
  }
  return { memory, spaces };
}
