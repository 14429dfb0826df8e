import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { durably } from '../store/testing/lost-writes.ts';
import { collect, eventually, offer, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start({ appendOnly: true });
});
after(() => redis.stop());

/** Length of the lease: the runtime renews it within a quarter of this time, and the reaper runs every fifth of it. */
const LEASE_MS = 5000;

test('repair restores the ledger, the sums and the queues after Redis has lost some of their entries', async () => {
  const log = new CollectedLog();
  const scheduler = openTestScheduler(redis, { leaseMs: LEASE_MS, log });
  const { admission, invocations, queue, store } = scheduler;
  const { keys } = store;
  const lease = await offer(scheduler, { slots: 4, pages: { m: 100 } });
  const submit = async (tenant: string) =>
    (await scheduler.submit(submission({ tenant, expectedPages: { m: 10 } }))).id;
  const ids: string[] = [];
  for (let i = 0; i < 8; i += 1) ids.push(await submit(i % 2 === 0 ? 'a' : 'b'));
  const [recordless, ended, unlisted, , unqueued, jobless] = ids as [
    string,
    string,
    string,
    string,
    string,
    string,
    ...string[],
  ];
  assert.deepEqual(await admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
  assert.equal(await admission.repair(), null, 'a second repair in a row does nothing');

  await store.redis.lpush(`${keys.jobs}:wait`, 'unknown');
  await store.redis.sadd(`${keys.admission}:starting`, 'unknown');
  await store.redis.hset(`${keys.admission}:claims`, 'unknown', '{}');
  await store.redis.del(keys.invocation(recordless));
  await store.redis.hset(keys.invocation(ended), 'status', 'failed');
  await store.redis.lrem(`${keys.jobs}:wait`, 1, unlisted);
  await store.redis.zrem(keys.waiting('a'), unqueued);
  await store.redis.zrem(keys.waiting('b'), jobless);
  await store.redis.del(`${keys.jobs}:${jobless}`);
  await store.redis.hincrby(`${keys.admission}:state`, 'slots', 3);
  await store.redis.hset(`${keys.admission}:tenant:b`, 'held:m', 70, 'held:n', 5);
  await store.redis.srem(keys.sharers('m'), 'b');
  await store.redis.sadd(keys.sharers('m'), 'unknown');
  const repairs = await admission.repair(0);
  assert.deepEqual((await store.redis.smembers(keys.sharers('m'))).sort(), ['a', 'b']);
  // Dropped: `recordless` and `ended`. Returned: `unlisted` and `unqueued`. Sums: slots, `held:m` and `held:n` of tenant b.
  assert.deepEqual(repairs, { dropped: 2, returned: 2, sums: 3, lost: [jobless] });
  assert.ok(!(await queue.waiting()).includes('unknown'));
  assert.equal(await store.redis.sismember(`${keys.admission}:starting`, 'unknown'), 0);
  assert.equal(await store.redis.hlen(`${keys.admission}:claims`), 0);
  assert.deepEqual(await admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [jobless] });

  // The reaper repairs by itself, and ends invocations without a job.
  await store.redis.hdel(`${keys.admission}:state`, 'repairedAt');
  scheduler.reaper.start();
  const [last] = (await collect(scheduler.events.follow(jobless, 0))).slice(-1);
  assert.equal(JSON.parse(last?.data ?? '{}').code, 'internal');
  const figures = {};
  const cause = 'Redis has lost the input of this invocation.';
  const of = { tenant: 'b', function: 'story', invocation: jobless };
  assert.deepEqual(
    log.records.map(({ fields }) => fields),
    [{ ...of, code: 'internal', cause, figures }],
  );
  const open = ids.filter((id) => ![recordless, ended, jobless].includes(id));
  assert.deepEqual(new Set(await queue.waiting()), new Set(open));
  assert.deepEqual((await admission.capacity()).models, [{ model: 'm', pages: 100, usedPages: 40 }]);

  // A restarted Redis is consistent, since each transition is one script.
  await durably(redis, async () => undefined);
  await redis.restart();
  await eventually(async () => (await scheduler.runtimes.alive()).length === 1, 'the runtime renews its lease again');
  assert.deepEqual(await admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
  for (const id of open) await invocations.fail(id, 'internal', 'the end');
  assert.deepEqual(await admission.tenants(), []);
  assert.equal((await admission.capacity()).usedSlots, 0);
  await lease.release();
  assert.equal((await admission.capacity()).slots, 0);
  await scheduler.close();
});
