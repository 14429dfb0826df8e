import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { offer, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

/** More tenants than one step settles. */
const TENANTS = 700;

test('a change that concerns all tenants reaches 700 of them, which takes more than one step', async () => {
  const scheduler = openTestScheduler(redis);
  const { store, admission } = scheduler;
  const lease = await offer(scheduler, { slots: TENANTS });
  await lease.describe({ starts: TENANTS });
  const names = Array.from({ length: TENANTS }, (_, i) => `t${i}`);
  for (const tenant of names) await store.redis.hset(store.keys.tenant(tenant), 'suspended', 1);
  await Promise.all(names.map((tenant) => scheduler.submit(submission({ tenant }))));
  assert.equal((await admission.capacity()).usedSlots, 0);
  for (const tenant of names) await store.redis.hdel(store.keys.tenant(tenant), 'suspended');
  await scheduler.pokeAdmission();
  assert.equal((await admission.capacity()).usedSlots, TENANTS);
  assert.equal(await store.redis.hexists(`${store.keys.admission}:state`, 'settling'), 0);
  await lease.release();
  await scheduler.close();
});

test('the expected pages of a waiting head follow the models of the platform', async () => {
  const scheduler = openTestScheduler(redis);
  const { admission } = scheduler;
  // The 30 pages are those of the platform's first model by name: `n`, until a runtime offers `m`.
  const first = await offer(scheduler, { slots: 1, pages: { n: 100 } });
  for (let i = 0; i < 2; i += 1) await scheduler.submit(submission({ expectedPages: 30 }));
  const used = async () => (await admission.capacity()).models.map(({ model, usedPages }) => [model, usedPages]);
  assert.deepEqual(await used(), [['n', 30]]);
  const second = await offer(scheduler, { slots: 1, pages: { m: 100 } });
  assert.deepEqual((await used()).toSorted(), [
    ['m', 30],
    ['n', 30],
  ]);
  await first.release();
  await second.release();
  await scheduler.close();
});

test("the expected pages of a waiting head follow its tenant's quota", async (context) => {
  const scheduler = openTestScheduler(redis);
  const { admission, invocations, quotas } = scheduler;
  const lease = await offer(scheduler, { slots: 1, pages: { m: 100 } });
  context.after(async () => {
    await lease.release();
    await scheduler.close();
  });
  const first = await scheduler.submit(submission({ expectedPages: 30 }));
  await scheduler.submit(submission({ expectedPages: 30 }));
  const limit = { quota: 'kv-pages', function: null, limit: 10, until: null } as const;
  await quotas.set('default', limit, { author: 'test', reason: '' });
  await scheduler.pokeAdmission('default');
  await invocations.fail(first.id, 'internal', 'over');
  const { usedSlots, models } = await admission.capacity();
  assert.deepEqual([usedSlots, models], [1, [{ model: 'm', pages: 100, usedPages: 10 }]]);
});

test('a tenant whose record was about to expire is kept once it holds an invocation again', async () => {
  const scheduler = openTestScheduler(redis);
  const { admission, invocations, store } = scheduler;
  const lease = await offer(scheduler, { slots: 2 });
  const { id } = await scheduler.submit(submission());
  await invocations.fail(id, 'internal', 'over');
  const key = `${store.keys.admission}:tenant:default`;
  assert.ok((await store.redis.pttl(key)) > 0, 'the record of an idle tenant expires');
  const again = await scheduler.submit(submission());
  // As if Redis had lost the command that removed the expiry.
  await store.redis.pexpire(key, 60_000);
  await admission.repair(0);
  assert.equal(await store.redis.pttl(key), -1);
  await invocations.fail(again.id, 'internal', 'over');
  await lease.release();
  await scheduler.close();
});
