import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isNewer } from '#scheduler/policies/preemption.ts';
import { seeded } from '#test/harness/random.ts';
import { PAGE_SIZE, type Setting, type WriteCall } from './testing/schedule.ts';
import { type Actor, World } from './testing/world.ts';

const INFERLETS = 128;
const SEED = 20261120;

/** An inferlet's work: tokens in pieces, with a wait for I/O now and then. */
interface Program {
  readonly tokens: number;
  /** Remaining rounds of the present wait. */
  waits: number;
  outcome: 'running' | 'finished' | 'ended';
}

/** Opens inferlets that together want `factor` times the pool, all at once, and runs them to their ends. */
function oversubscribe(factor: number, swapPages: number): Record<string, number> {
  const random = seeded(SEED + factor);
  const programs = Array.from(
    { length: INFERLETS },
    (): Program => ({
      tokens: PAGE_SIZE * (4 + random(12)),
      waits: 0,
      outcome: 'running',
    }),
  );
  const wanted = programs.reduce((sum, { tokens }) => sum + tokens / PAGE_SIZE, 0);
  const setting: Setting = {
    pages: Math.ceil(wanted / factor),
    maxPages: 32,
    prefixCache: true,
    rotates: true,
    swapMemoryPages: swapPages >> 1,
    swapDiskPages: swapPages - (swapPages >> 1),
    families: false,
    tenants: 2,
    tenantPages: null,
  };
  const world = new World(setting);
  for (const [who] of programs.entries()) world.actor(who);
  const opened = world.actors.map((actor) => (actor as Actor).space);
  let rounds = 0;
  for (; programs.some(({ outcome }) => outcome === 'running'); rounds++) {
    assert.ok(rounds < 2000, 'the inferlets come to no end');
    const calls: WriteCall[] = [];
    for (const [who, program] of programs.entries()) {
      if (program.outcome !== 'running') continue;
      const actor = world.actors[who] as Actor;
      const { space } = actor;
      if (program.waits === 0 && random(6) === 0) program.waits = 1 + random(12);
      space.waiting = program.waits > 0;
      if (program.waits > 0) program.waits--;
      else calls.push(nextCall(who, program.tokens - tokensOf(actor), random));
    }
    // Random order: the first call served need not be the oldest inferlet's.
    const order = calls.map((call) => ({ call, rank: random(1 << 20) })).sort((a, b) => a.rank - b.rank);
    const oldest = oldestOf(programs, world);
    const before = oldest ? tokensOf(oldest.actor) : 0;
    const fate = random(20) === 0 ? 'failed' : 'done';
    world.apply({ kind: 'batch', calls: order.map(({ call }) => call), fate });
    if (oldest && fate === 'done' && calls.some(({ who }) => who === oldest.who)) {
      assert.equal(world.actors[oldest.who], oldest.actor, 'the oldest was ended');
      assert.ok(tokensOf(oldest.actor) > before, 'the oldest did not advance');
    }
    settle(programs, world, opened);
    if (rounds % 4 === 0) world.compare();
  }
  const count = (outcome: Program['outcome']): number => programs.filter((each) => each.outcome === outcome).length;
  const { swapsOut } = world.kit.memory.stats();
  const summary = { factor, swapPages, rounds, finished: count('finished'), ended: count('ended'), swapsOut };
  world.close();
  return summary;
}

function nextCall(who: number, remainingTokens: number, random: (below: number) => number): WriteCall {
  const tokens = Array.from({ length: Math.min(remainingTokens, 1 + random(8)) }, () => random(3));
  return { kind: 'text', who, tokens, keep: 1, bend: 'none', pick: 1, adapter: 0 };
}

/** Ends inferlets that have finished their work, and checks that every terminated one has a cause. */
function settle(programs: readonly Program[], world: World, opened: readonly Actor['space'][]): void {
  for (const [who, program] of programs.entries()) {
    if (program.outcome !== 'running') continue;
    const actor = world.actors[who];
    if (!actor) {
      assert.match(opened[who]?.terminationCause ?? '', /^memory pressure: /);
      program.outcome = 'ended';
      continue;
    }
    if (tokensOf(actor) < program.tokens) continue;
    program.outcome = 'finished';
    world.apply({ kind: 'end', who });
  }
}

function oldestOf(programs: readonly Program[], world: World): { who: number; actor: Actor } | undefined {
  let oldest: { who: number; actor: Actor } | undefined;
  for (const [who, { outcome }] of programs.entries()) {
    const actor = world.actors[who];
    if (outcome === 'running' && actor && (!oldest || isNewer(oldest.actor.space, actor.space)))
      oldest = { who, actor };
  }
  return oldest;
}

function tokensOf({ pages }: Actor): number {
  let tokens = 0;
  for (const { slots } of pages.values()) tokens += slots.filter((slot) => slot).length;
  return tokens;
}

for (const swapPages of [0, 40, 4000]) {
  for (const factor of [2, 4, 8]) {
    test(`of ${INFERLETS} inferlets that want ${factor} times the pool, with ${swapPages} pages of swap, enough finish, and the oldest always advances (seed ${SEED})`, (context) => {
      const summary = oversubscribe(factor, swapPages);
      context.diagnostic(JSON.stringify(summary));
      assert.equal((summary.finished ?? 0) + (summary.ended ?? 0), INFERLETS);
      assert.ok((summary.finished ?? 0) >= INFERLETS / factor / 2, 'hardly any inferlet finished');
    });
  }
}
