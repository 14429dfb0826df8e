import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { loadScript } from '../store/lua-script.ts';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { MEMORY } from './job.ts';
import { anyCapacity, anyOrder, Player } from './testing/history.ts';

const STEPS = loadScript(new URL('./testing/steps.lua', import.meta.url));

const ALL = process.env.PIE_TEST_ALL === '1';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

for (const { tenants, length, numRuns } of [
  { tenants: 4, length: 120, numRuns: ALL ? 600 : 100 },
  // More tenants than admission looks at in one step (`LOOK`).
  { tenants: 40, length: 240, numRuns: ALL ? 150 : 25 },
]) {
  test(`the script decides like the policy among ${tenants} tenants, and its sums equal its entries`, async () => {
    await fc.assert(
      fc.asyncProperty(
        anyCapacity,
        fc.array(anyOrder(tenants), { minLength: length / 4, maxLength: length }),
        async (capacity, orders) => {
          const player = new Player(capacity);
          player.playAll(orders);
          const scheduler = openTestScheduler(redis);
          const { store, admission } = scheduler;
          try {
            const keys = [`${store.keys.admission}:state`];
            const answers = await store.script(STEPS, keys, [store.keys.prefix, JSON.stringify(player.steps)]);
            assert.deepEqual(
              answers,
              player.steps.map(({ onTheirWay }) => onTheirWay.join(' ')),
            );
            const used: Record<string, number> = {};
            for (const id of player.admitted.keys()) {
              for (const [model, count] of Object.entries(player.policy.countedPages(id)))
                used[model] = (used[model] ?? 0) + count;
            }
            const found = await admission.capacity();
            assert.equal(found.usedSlots, player.admitted.size);
            for (const { model, usedPages } of found.models) assert.equal(usedPages, used[model] ?? 0);
            if (found.memory !== null) assert.equal(found.memory.usedMb, used[MEMORY] ?? 0);
            const loads = await admission.tenants();
            const stored = await Promise.all(
              loads.map(({ tenant }) => store.redis.hget(`${store.keys.admission}:tenant:${tenant}`, 'overtaken')),
            );
            assert.deepEqual(
              stored.map(Number),
              loads.map(({ tenant }) => player.policy.overtaken(tenant)),
              'counts of how often heads were overtaken',
            );
            for (const { tenant, running, waiting } of loads) {
              assert.equal(running, [...player.admitted.values()].filter((demand) => demand.tenant === tenant).length);
              assert.equal(waiting, player.policy.queue(tenant).length);
            }
            assert.equal(
              loads.reduce((sum, { waiting }) => sum + waiting, 0),
              player.waiting.size,
            );
          } finally {
            await store.redis.flushall();
            await scheduler.close();
          }
        },
      ),
      { seed: 20261120, numRuns },
    );
  });
}

test('the script counts only tenants that share a model: 30 sleepers without its pages keep no newcomer out', async () => {
  const scheduler = openTestScheduler(redis);
  const { store } = scheduler;
  const capacity = { slots: 100, starts: 1000, reserve: 0, pages: { m: 100, n: 100 } };
  const enter = (id: number, tenant: string, pages: object) => ({
    kind: 'enter',
    now: 0,
    id: `i${id}`,
    tenant,
    arrival: id,
    pages,
  });
  try {
    const sleepers = Array.from({ length: 30 }, (_, i) => enter(i, `sleeper${i}`, i % 2 ? { n: 3 } : {}));
    const others = [enter(30, 'worker', { m: 100 }), enter(31, 'newcomer', { m: 50 }), enter(32, 'newcomer', { m: 1 })];
    const steps = [{ kind: 'resize', now: 0, ...capacity }, ...sleepers, ...others];
    const answers = await store.script(
      STEPS,
      [`${store.keys.admission}:state`],
      [store.keys.prefix, JSON.stringify(steps)],
    );
    assert.equal((answers as string[]).at(-1)?.split(' ').length, 32, 'all but the last, which is beyond its share');
    assert.deepEqual((await store.redis.smembers(store.keys.sharers('m'))).sort(), ['newcomer', 'worker']);
    assert.equal(await store.redis.scard(store.keys.sharers('n')), 15);
  } finally {
    await store.redis.flushall();
    await scheduler.close();
  }
});
