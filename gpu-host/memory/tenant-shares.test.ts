import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '#test/harness/random.ts';
import { CallFault, CallHeld } from './fault.ts';
import { fillSlot, PRESENT_MS } from './pool.ts';
import type { PageSpace } from './space.ts';
import { cacheText, makeMemory, type TestMemory } from './testing/memory.ts';

const PAGES = 60;
const PAGE_SIZE = 4;
const SEEDS = process.env.PIE_TEST_ALL ? 400 : 60;

/** Allocates pages with content, so that they need room in swap. */
function allocateFilled(space: PageSpace, first: number, count: number): void {
  space.allocate(first, count);
  for (let i = 0; i < count; i++) fillSlot(space.peek(first + i).page, 0, 0);
}

/** Frames, and frames with swap, by tenant, counted from the holders of the pages. */
function countsOf({ memory }: TestMemory): { frames: Map<string, number>; all: Map<string, number> } {
  const pages = new Set([...memory.snapshots.held.keys(), ...(memory.prefixes?.pages() ?? [])]);
  for (const { held } of memory.spaces) for (const page of held.keys()) pages.add(page);
  const counts = { frames: new Map<string, number>(), all: new Map<string, number>() };
  for (const { account, frame } of pages) {
    const { tenant } = account;
    counts.all.set(tenant, (counts.all.get(tenant) ?? 0) + 1);
    if (frame >= 0) counts.frames.set(tenant, (counts.frames.get(tenant) ?? 0) + 1);
  }
  return counts;
}

test('a lone tenant may hold the whole pool, and keeps what it had cached until it needs the frames', () => {
  const kit = makeMemory({ pages: PAGES, pageSize: PAGE_SIZE, prefixCache: true });
  cacheText(kit.open(), 10);
  const space = kit.open();
  space.allocate(0, PAGES);
  assert.equal(kit.memory.stats().free, 0);
  kit.memory.audit();
});

test('a tenant above its share loses cached pages first, and none of a tenant within its share leave for it', () => {
  const kit = makeMemory({
    pages: PAGES,
    pageSize: PAGE_SIZE,
    prefixCache: true,
    swapMemoryPages: 1000,
    preempt: () => undefined,
  });
  const neighbour = kit.open({ tenant: 'neighbour' });
  cacheText(neighbour, 10);
  kit.memory.closeSpace(neighbour);
  const churner = kit.open({ tenant: 'churner' });
  for (let round = 0; round < 20; round++) {
    churner.allocate(0, 50);
    churner.free(Uint32Array.from({ length: 50 }, (_, i) => i));
  }
  assert.equal(countsOf(kit).frames.get('neighbour'), 10);
  assert.throws(() => churner.allocate(0, 51), CallHeld, 'the claim waits: it ends no inferlet');
  assert.equal(countsOf(kit).frames.get('neighbour'), 10);
  kit.memory.audit();
});

test('a tenant within its share keeps its cached pages while it claims others beside a hoarder', () => {
  const kit = makeMemory({
    pages: PAGES,
    pageSize: PAGE_SIZE,
    prefixCache: true,
    swapMemoryPages: 1000,
    preempt: () => undefined,
  });
  const small = kit.open({ tenant: 'small' });
  cacheText(small, 10);
  allocateFilled(kit.open({ tenant: 'hoarder' }), 0, 50);
  for (let first = 0; first < 20; first += 4) allocateFilled(small, first, 4);
  assert.equal(countsOf(kit).frames.get('small'), 30, 'ten of them are cached');
  assert.equal(kit.memory.stats().cached, 10);
  small.allocate(30, 1);
  assert.equal(kit.memory.stats().cached, 9, 'beyond its share, the tenant loses its own cached pages');
  kit.memory.audit();
});

test('a claim that lacks only what an absent tenant left behind gets it when nothing else runs', () => {
  const kit = makeMemory({ pages: PAGES, pageSize: PAGE_SIZE, prefixCache: true, preempt: () => undefined });
  const absent = kit.open({ tenant: 'absent' });
  cacheText(absent, 10);
  kit.memory.closeSpace(absent);
  const space = kit.open({ tenant: 'present' });
  assert.throws(() => space.allocate(0, PAGES), CallHeld);
  space.contender.heldCalls++;
  assert.equal(kit.memory.relief.next(), undefined, 'the tenant keeps its share for a while beside others');
  assert.equal(kit.memory.relief.stalled(), true);
  assert.equal(kit.memory.relief.next(), space.contender);
  space.contender.heldCalls--;
  space.allocate(0, PAGES);
  kit.memory.audit();
});

test('with a full swap, the newest inferlet of the tenant above its share ends, and only that tenant loses any', () => {
  const ended: string[] = [];
  const kit = makeMemory({
    pages: PAGES,
    pageSize: PAGE_SIZE,
    swapMemoryPages: 40,
    preempt: () => undefined,
    ended: ({ owner }, cause) => ended.push(`${owner.id}: ${cause}`),
  });
  const hoarders = Array.from({ length: 10 }, () => kit.open({ tenant: 'hoarder' }));
  for (const hoarder of hoarders) {
    allocateFilled(hoarder, 0, 10);
    hoarder.waiting = true;
  }
  assert.equal(kit.memory.stats().free, 0);
  const newcomer = kit.open({ tenant: 'neighbour' });
  allocateFilled(newcomer, 0, 25);
  assert.equal(ended.length, 3, ended.join('\n'));
  assert.match(
    ended[0] as string,
    /^inferlet-9: memory pressure: the newest inferlet of a tenant that holds 100 pages, 50 more than its share, gave way to an invocation of another tenant$/,
  );
  const hoarder = hoarders[6] as PageSpace;
  assert.throws(() => hoarder.allocate(20, 20), CallHeld, 'the rest of the pool is within the share of the newcomer');
  assert.equal(newcomer.heldPages, 25);
  kit.memory.audit();
});

test('a claim that lacks only the shares of sleeping tenants gets them when nothing else runs, and their pages move to swap', () => {
  const ended: string[] = [];
  const kit = makeMemory({
    pages: PAGES,
    pageSize: PAGE_SIZE,
    swapMemoryPages: 1000,
    preempt: () => undefined,
    ended: ({ owner }) => ended.push(owner.id),
  });
  const { relief } = kit.memory;
  const [sleeper, worker] = [kit.open({ tenant: 'sleeper' }), kit.open({ tenant: 'worker' })];
  allocateFilled(sleeper, 0, 30);
  sleeper.waiting = true;
  allocateFilled(worker, 0, 25);
  assert.throws(() => worker.allocate(30, 10), CallHeld);
  worker.contender.heldCalls++;
  assert.equal(relief.next(), undefined);
  assert.equal(relief.stalled(), true);
  assert.equal(relief.next(), worker.contender);
  worker.contender.heldCalls--;
  allocateFilled(worker, 30, 10);
  assert.equal(sleeper.heldPages, 30, 'the sleeper has all its pages, some of them in swap');
  assert.deepEqual(ended, []);
  kit.memory.audit();
});

test('when nothing can run, one held family that fits returns, although families that precede it neither wait nor end', () => {
  let nowMs = 0;
  const kit = makeMemory({ pages: PAGES, preempt: () => undefined, now: () => nowMs });
  const { relief } = kit.memory;
  allocateFilled(kit.open({ tenant: 'neighbour' }), 0, 28);
  const elder = kit.open({ tenant: 'worker' });
  allocateFilled(elder, 0, 20);
  const [worker, next] = [kit.open({ tenant: 'worker' }), kit.open({ tenant: 'worker' })];
  for (const space of [worker, next]) {
    assert.throws(() => space.allocate(0, 14), CallHeld, 'two of the pages are within the share of the neighbour');
    space.contender.heldCalls++;
  }
  elder.free(Uint32Array.of(0, 1));
  nowMs += 1000;
  assert.equal(relief.next(), undefined, 'no reserve is left beside its pages');
  assert.equal(relief.stalled(), true);
  assert.equal(relief.next(), worker.contender);
  worker.contender.heldCalls--;
  assert.equal(relief.next(), undefined, 'the first family takes the free pages');
  worker.allocate(0, 14);
  assert.equal(kit.memory.stats().free, 0);
  kit.memory.audit();
});

test('the oldest family of a tenant returns when its pages are within the share, however long older ones of other tenants run', () => {
  let nowMs = 0;
  const kit = makeMemory({ pages: PAGES, preempt: () => undefined, now: () => nowMs });
  const { relief } = kit.memory;
  const neighbour = kit.open({ tenant: 'neighbour' });
  allocateFilled(neighbour, 0, PAGES / 2);
  const elder = kit.open({ tenant: 'worker' });
  allocateFilled(elder, 0, 12);
  const [worker, next] = [kit.open({ tenant: 'worker' }), kit.open({ tenant: 'worker' })];
  for (const space of [worker, next]) {
    assert.throws(() => space.allocate(0, 20), CallHeld);
    space.contender.heldCalls++;
  }
  elder.free(Uint32Array.of(0, 1));
  nowMs += 1000;
  assert.equal(relief.next(), undefined, 'the elder runs, and keeps a reserve to grow');
  elder.waiting = true;
  neighbour.contender.stepped();
  assert.equal(relief.next(), worker.contender);
  worker.contender.heldCalls--;
  assert.equal(relief.next(), undefined, 'the free pages are promised');
  worker.allocate(0, 20);
  assert.equal(neighbour.contender.resident, PAGES / 2);
  kit.memory.audit();
});

test('a claim within the share takes from idle and then from running families of tenants above theirs, and is not held', () => {
  const preempted: string[] = [];
  const kit = makeMemory({
    pages: PAGES,
    swapMemoryPages: 1000,
    preempt: ({ account }) => preempted.push(account.tenant),
  });
  const [sleeper, runner, worker] = ['sleeper', 'runner', 'worker'].map((tenant) => kit.open({ tenant })) as [
    PageSpace,
    PageSpace,
    PageSpace,
  ];
  allocateFilled(sleeper, 0, 21);
  sleeper.waiting = true;
  allocateFilled(runner, 0, 22);
  allocateFilled(worker, 0, 17);
  assert.equal(kit.memory.stats().free, 0);
  allocateFilled(worker, 20, 2);
  assert.deepEqual(
    [sleeper, runner].map(({ contender }) => contender.resident),
    [20, 21],
  );
  assert.deepEqual(preempted, ['runner']);
  kit.memory.audit();
});

test('a family above its share gets what sleepers hold while others run, once these have slept for a minute; they take it back', () => {
  let nowMs = 0;
  const kit = makeMemory({ pages: PAGES, swapMemoryPages: 1000, preempt: () => undefined, now: () => nowMs });
  const { relief } = kit.memory;
  const [sleeper, runner, worker] = [
    kit.open({ tenant: 'sleeper' }),
    kit.open({ tenant: 'runner' }),
    kit.open({ tenant: 'worker' }),
  ];
  allocateFilled(sleeper, 0, 20);
  sleeper.waiting = true;
  allocateFilled(runner, 0, 5);
  allocateFilled(worker, 0, 20);
  assert.throws(() => worker.allocate(30, 20), CallHeld, 'the sleeper has its share');
  worker.contender.heldCalls++;
  for (; nowMs < PRESENT_MS; nowMs += 1000) {
    runner.contender.stepped();
    assert.equal(relief.next(), undefined);
    assert.equal(relief.isDue, false);
  }
  assert.equal(relief.isDue, true);
  assert.equal(relief.next(), worker.contender);
  worker.contender.heldCalls--;
  allocateFilled(worker, 30, 20);
  assert.equal(runner.contender.resident, 5);
  assert.ok(sleeper.contender.resident < 20);
  assert.equal(sleeper.heldPages, 20, 'the pages are in swap');
  sleeper.waiting = false;
  sleeper.makeResident(Array.from({ length: 20 }, (_, i) => sleeper.peek(i)));
  assert.equal(sleeper.contender.resident, 20, 'awake, it has its share at once');
  kit.memory.audit();
});

test('two tenants whose families all need more than their share still advance, one after the other', () => {
  const kit = makeMemory({ pages: PAGES, pageSize: PAGE_SIZE, swapMemoryPages: 1000, preempt: () => undefined });
  const { relief } = kit.memory;
  const [a, b] = [kit.open({ tenant: 'a' }), kit.open({ tenant: 'b' })];
  allocateFilled(a, 0, 30);
  allocateFilled(b, 0, 30);
  for (const space of [a, b]) {
    assert.throws(() => space.allocate(40, 10), CallHeld);
    space.contender.heldCalls++;
  }
  assert.equal(relief.next(), undefined, 'neither fits beside the share of the other');
  assert.equal(relief.stalled(), true);
  assert.equal(relief.next(), a.contender);
  a.contender.heldCalls--;
  allocateFilled(a, 40, 10);
  assert.equal(relief.next(), undefined);
  kit.memory.closeSpace(a);
  assert.equal(relief.next(), b.contender);
  b.contender.heldCalls--;
  allocateFilled(b, 40, 10);
  kit.memory.audit();
});

/** An inferlet that allocates pages until it holds `target` pages, and then ends. */
interface Program {
  readonly space: PageSpace;
  readonly tenant: string;
  readonly target: number;
  /** Pages of the claim that is held; 0 without one. */
  heldClaim: number;
  isOver: boolean;
}

/** A random history of programs of several tenants on one model. */
class History {
  readonly kit: TestMemory;
  readonly programs: Program[] = [];
  preemptions = 0;
  claimedPages = 0;
  readonly #random: (below: number) => number;
  readonly #tenants: number;
  readonly #ended = new Set<PageSpace>();
  #nextAddress = 0;
  #nowMs = 0;

  constructor(seed: number) {
    this.#random = seeded(seed);
    this.#tenants = 1 + this.#random(4);
    this.kit = makeMemory({
      pages: PAGES,
      pageSize: PAGE_SIZE,
      prefixCache: true,
      swapMemoryPages: [0, 20, 1000][this.#random(3)] as number,
      now: () => this.#nowMs,
      preempt: () => {
        this.preemptions++;
      },
      ended: (space) => {
        this.#ended.add(space);
        for (const program of this.programs) if (program.space === space) program.isOver = true;
      },
    });
  }

  open(): void {
    const tenant = `tenant ${this.#random(this.#tenants)}`;
    const space = this.kit.open({ tenant, maxPages: PAGES });
    this.programs.push({ space, tenant, target: 1 + this.#random(25), heldClaim: 0, isOver: false });
  }

  /** Lets each program go on by some pages, as the engine does. */
  round(): void {
    const { memory } = this.kit;
    this.#nowMs += 25;
    for (const space of this.#ended) memory.closeSpace(space);
    this.#ended.clear();
    // The next call of a preempted family is held.
    for (const { space, isOver } of this.programs) if (!isOver && space.contender.isAway) space.contender.heldCalls = 1;
    for (let family = memory.relief.next(); family; family = memory.relief.next()) family.heldCalls = 0;
    let anyAdvanced = false;
    for (const program of this.programs) {
      const { space } = program;
      if (program.isOver || space.contender.isAway) continue;
      if (this.#random(8) === 0) space.waiting = !space.waiting;
      if (!space.waiting) anyAdvanced = this.#advance(program) || anyAdvanced;
    }
    memory.stepped();
    if (anyAdvanced) return;
    for (const { space } of this.programs) if (this.#random(3) === 0) space.waiting = false;
    memory.relief.stalled();
    // Tenants that are away keep their cached prefixes for a while.
    this.#nowMs += 500;
  }

  #advance(program: Program): boolean {
    const { space, tenant } = program;
    const count = program.heldClaim || 1 + this.#random(4);
    const before = countsOf(this.kit);
    const tenants = new Set([...before.all.keys(), tenant]);
    const share = Math.floor(PAGES / tenants.size);
    const totalShare = Math.floor((PAGES + (this.kit.swap?.stats().capacity ?? 0)) / tenants.size);
    const absentPages = [...space.held.keys()].filter(({ frame }) => frame < 0).length;
    const textPages = this.#random(4) === 0 ? 1 + this.#random(4) : 0;
    const mayHold = (before.frames.get(tenant) ?? 0) + absentPages + textPages + count <= share;
    const isOldest = !this.programs.some(
      (each) => !each.isOver && each.tenant === tenant && each.space.order < space.order,
    );
    const { isForced } = space.contender;
    const running = new Set(this.programs.filter((each) => each.space.contender.runs).map((each) => each.tenant));
    let isHeld = false;
    try {
      this.#claim(program, count, textPages);
    } catch (error) {
      isHeld = error instanceof CallHeld;
      if (!isHeld && !(error instanceof CallFault)) throw error;
      assert.ok(!mayHold || !isOldest, `the oldest family of ${tenant} did not advance within the share of ${share}`);
      program.isOver = !isHeld;
      if (isHeld) {
        program.heldClaim = count;
        space.contender.heldCalls = 1;
      } else if (!this.#ended.has(space)) this.kit.memory.closeSpace(space);
    }
    const after = countsOf(this.kit);
    for (const other of tenants) {
      if (other === tenant) continue;
      const [had, has] = [before.frames.get(other) ?? 0, after.frames.get(other) ?? 0];
      const [hadAll, hasAll] = [before.all.get(other) ?? 0, after.all.get(other) ?? 0];
      // An inferlet of a tenant above its share ends as a whole.
      if (hadAll > totalShare && hasAll < hadAll) continue;
      // When no family fits beside the shares of others, the first one takes pages of tenants that wait, or of which no family ran, as well.
      const ofOther = this.programs
        .filter((each) => each.tenant === other)
        .map(({ space: { contender } }) => contender);
      if (isForced && (ofOther.some(({ heldCalls }) => heldCalls > 0) || !running.has(other))) continue;
      assert.ok(
        has >= Math.min(had, share),
        `a claim of ${tenant} took ${had - has} of the ${had} frames of ${other}; the share is ${share}`,
      );
    }
    return !isHeld;
  }

  #claim(program: Program, count: number, textPages: number): void {
    const { space } = program;
    space.makeResident([...this.#mappings(space)]);
    if (textPages > 0) cacheText(space, textPages, this.#random(20));
    allocateFilled(space, this.#nextAddress, count);
    this.#nextAddress += count;
    this.claimedPages += count;
    program.heldClaim = 0;
    space.contender.stepped();
    if (space.heldPages < program.target) return;
    program.isOver = true;
    this.kit.memory.closeSpace(space);
  }

  *#mappings(space: PageSpace) {
    for (let address = 0; address < this.#nextAddress; address++) if (space.pageAt(address)) yield space.peek(address);
  }
}

test('in any history of several tenants, none within its share loses pages to another, the oldest within its share is not held, and all end', () => {
  let [preemptions, claimed] = [0, 0];
  for (let seed = 1; seed <= SEEDS; seed++) {
    const history = new History(seed);
    const { kit, programs } = history;
    for (let i = 0; i < 12; i++) history.open();
    for (let round = 0; programs.some(({ isOver }) => !isOver); round++) {
      assert.ok(round < 3000, `seed ${seed}: the programs come to no end`);
      try {
        history.round();
        kit.memory.audit();
      } catch (cause) {
        throw new Error(`seed ${seed}, round ${round}: ${(cause as Error).message}`, { cause });
      }
    }
    preemptions += history.preemptions;
    claimed += history.claimedPages;
    const { free, cached, owned, total } = kit.memory.pool.counts();
    assert.equal(free + cached + owned, total);
  }
  assert.ok(preemptions > 50, `only ${preemptions} preemptions`);
  assert.ok(preemptions <= claimed, `${preemptions} preemptions for ${claimed} pages`);
});
