import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { hasEnded, type Invocation, isTerminal } from '#scheduler/invocations/types.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { RuntimePlatform } from '../testing/platform.ts';

const PAGES = 32;
/** More children than this must have lived; fewer would test too little. */
const ENOUGH = 80;

/** One step of an inferlet's life; see `live` in `testing/fixtures/family.js`. */
type Step = readonly [string, ...unknown[]];

/** A random life: steps, of which some launch children with lives of their own, down to `depth` generations. */
function life(depth: number): fc.Arbitrary<readonly Step[]> {
  const name = fc.nat(3);
  const steps: fc.WeightedArbitrary<Step>[] = [
    { weight: 3, arbitrary: fc.nat(15).map((ms): Step => ['sleep', ms]) },
    { weight: 2, arbitrary: fc.nat(9).map((number): Step => ['say', number]) },
    { weight: 1, arbitrary: fc.constant<Step>(['hold', 1]) },
  ];
  if (depth > 0) {
    const launch = fc.tuple(name, life(depth - 1)).map(([child, plan]): Step => ['launch', child, plan]);
    steps.push({ weight: 8, arbitrary: launch });
    for (const action of ['cancel', 'wait', 'drop']) {
      steps.push({ weight: 2, arbitrary: name.map((child): Step => [action, child]) });
    }
  }
  const ending = fc.oneof(
    { weight: 1, arbitrary: fc.constant<readonly Step[]>([]) },
    { weight: 5, arbitrary: fc.constant<readonly Step[]>([['sleep', 50]]) },
    { weight: 1, arbitrary: fc.constantFrom<readonly Step[]>([['throw']], [['spin']], [['sleep', 60_000]]) },
  );
  return fc
    .tuple(fc.array(fc.oneof(...steps), { minLength: depth + 1, maxLength: 2 + 2 * depth, size: 'max' }), ending)
    .map(([middleSteps, lastSteps]) => [...middleSteps, ...lastSteps]);
}

describe('the lives of children', () => {
  let platform: RuntimePlatform;
  let version: FunctionVersion;
  let lasting: FunctionVersion;
  before(async () => {
    platform = await RuntimePlatform.start({ pageCount: PAGES });
    const source = await readFile(new URL('../testing/fixtures/family.js', import.meta.url), 'utf8');
    const limits = { memoryMb: 16, cpuMs: 60, wallMs: 400, pages: 8, tokens: 500 };
    version = await platform.deploy(source, { name: 'family', limits, grants: { launch: ['family'] } });
    const longLimits = { ...limits, cpuMs: 60_000, wallMs: 240_000 };
    lasting = await platform.deploy(source, { name: 'lasting', limits: longLimits, grants: { launch: ['lasting'] } });
  });
  after(() => platform.stop());

  const invocations = (name = 'family') => platform.scheduler.invocations.recent('default', name, 200);

  /** Asserts the invariants after the roots have ended. @returns the number of roots and descendants */
  async function assertNothingIsLeft(roots: readonly string[]): Promise<number> {
    const { scheduler, runtime } = platform;
    const familyRecords = (await invocations()).filter(({ id, root }) => roots.includes(root ?? id));
    const byId = new Map<string, Invocation>(familyRecords.map((record) => [record.id, record]));
    for (const record of familyRecords) {
      assert.ok(hasEnded(record.status), `${record.id} is ${record.status}`);
      const events = await scheduler.events.read(record.id, 0);
      const terminal = events.filter(({ event }) => isTerminal(event));
      assert.deepEqual(terminal, events.slice(-1), `${record.id} has ${terminal.length} terminal events`);
      const parent = record.parent === null ? undefined : byId.get(record.parent);
      if (record.parent === null) continue;
      assert.ok(parent, 'the record names its parent');
      assert.ok((record.endedAt ?? 0) <= (parent.endedAt ?? 0), `${record.id} outlived its parent`);
      assert.equal(record.arrival, parent.arrival);
    }
    await eventually(() => runtime.running === 0, 'all runs have ended');
    assert.equal((await scheduler.invocations.children()).size, 0);
    const { redis, keys } = scheduler.store;
    assert.equal(await redis.zcard(keys.deadlines), 0);
    await eventually(async () => (await platform.freePages()) === PAGES, 'the GPU host holds nothing');
    assert.deepEqual(platform.errors, []);
    return familyRecords.length;
  }

  it('every child ends once and before its parent, with random launches, drops and cancellations', async () => {
    let children = 0;
    const schedule = fc.record({
      plans: fc.array(life(3), { minLength: 3, maxLength: 5, size: 'max' }),
      cancels: fc.array(fc.nat(60), { maxLength: 6, size: 'max' }),
    });
    const lives = fc.asyncProperty(schedule, async ({ plans, cancels }) => {
      const roots = await Promise.all(
        plans.map((plan) => platform.submit(version, { do: 'live', name: 'family', plan })),
      );
      const ended = Promise.all(roots.map((id) => platform.transcript(id)));
      for (const pauseMs of cancels) {
        await sleep(pauseMs);
        // The test may cancel any invocation that has not ended: a root, or a child of any generation.
        const unended = (await invocations()).filter(
          ({ id, root, status }) => roots.includes(root ?? id) && !hasEnded(status),
        );
        const target = unended[pauseMs % Math.max(1, unended.length)];
        if (target) await platform.scheduler.cancel(target.id, 'at random');
      }
      await ended;
      children += (await assertNothingIsLeft(roots)) - roots.length;
    });
    // On a loaded machine, the trees reach their wall time with fewer children, so the test draws more trees.
    for (let seed = 20261120; children <= ENOUGH && seed < 20261124; seed++)
      await fc.assert(lives, { seed, numRuns: 16, endOnFailure: true });
    assert.ok(children > ENOUGH, `${children} children lived`);
  });

  it('children end with a runtime that is declared dead, and that runtime then releases them', async () => {
    const inputs = Array.from({ length: 3 }, () => ({
      do: 'live',
      name: 'lasting',
      plan: [
        ['hold', 1],
        ['sleep', 240_000],
      ],
    }));
    const root = await platform.submit(lasting, { do: 'many', name: 'lasting', inputs, next: { do: 'stubborn' } });
    await eventually(async () => (await platform.scheduler.invocations.children()).size === 3, 'the children run');
    await platform.scheduler.runtimes.recover(platform.runtime.id);
    await platform.transcript(root);
    for (const record of (await invocations('lasting')).filter((one) => one.root === root || one.id === root)) {
      // The runtime still runs the parent, which may cancel its other children when the first is lost.
      const codes = record.id === root ? ['runtime-lost'] : ['runtime-lost', 'cancelled'];
      assert.ok(codes.includes(record.failure?.code ?? ''), `${record.failure?.code}`);
      assert.equal(
        (await platform.scheduler.events.read(record.id, 0)).filter(({ event }) => isTerminal(event)).length,
        1,
      );
    }
    await eventually(() => platform.runtime.running === 0, 'the runtime releases its runs');
    await eventually(async () => (await platform.freePages()) === PAGES, 'the GPU host holds nothing');
  });

  it('children end with a runtime that is killed', async () => {
    const { scheduler } = platform;
    await platform.runtime.stop(0);
    const { kill } = await platform.spawnRuntime('runtime-test');
    const inputs = Array.from({ length: 3 }, () => ({ do: 'live', name: 'lasting', plan: [['sleep', 240_000]] }));
    const root = await platform.submit(lasting, { do: 'many', name: 'lasting', inputs, next: { do: 'stubborn' } });
    await eventually(async () => (await scheduler.invocations.children()).size === 3, 'the children run');
    const children = [...(await scheduler.invocations.children()).keys()];
    await kill();
    platform.runtime = await platform.startRuntime();
    for (const id of [root, ...children]) {
      const { end, events } = await platform.transcript(id);
      assert.equal(end.data.code, 'runtime-lost');
      assert.equal(events.filter(({ event }) => isTerminal(event)).length, 1);
    }
    assert.equal((await scheduler.invocations.children()).size, 0);
  });
});
