import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { CollectedLog } from '#scheduler/testing/log.ts';
import type { Scheduler } from '../scheduler.ts';
import { losingWrites } from '../store/testing/lost-writes.ts';
import { eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

describe('the lease of a runtime', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  afterEach(() => scheduler.close());
  after(() => redis.stop());

  test('a renewal stores the load when it differs from the load that was stored last, also by a description', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: 4000 });
    const { redis: client, keys } = scheduler.store;
    const lease = await scheduler.runtimes.acquire({ name: 'steady', slots: 1 });
    const alive = keys.alive(lease.id);
    let load = 1;
    lease.reportLoad(() => ({ running: load }));
    const untilStored = (running: number) =>
      eventually(async () => (await client.get(alive)) === JSON.stringify({ running }), `a load of ${running}`);
    const renewal = async () => {
      const before = lease.answeredAt;
      await eventually(() => lease.answeredAt > before, 'a renewal');
    };
    await untilStored(1);
    // This value has no lifetime, so it cannot expire before the next renewal. A renewal of an unchanged load only sets a lifetime.
    await client.set(alive, 'of another');
    await eventually(async () => (await client.pttl(alive)) > 0, 'the lease is renewed');
    assert.equal(await client.get(alive), 'of another');
    load = 2;
    await untilStored(2);
    await renewal();
    // The description stores a load of 3. The next renewal must store 2, although the renewal before stored 2, too.
    load = 3;
    const described = lease.describe({ slots: 2 });
    load = 2;
    await described;
    await untilStored(2);
    await lease.release();
  });

  test('a lease that is released during a renewal does not register again', async () => {
    const connections: ReturnType<typeof redis.connect>[] = [];
    const connect = () => {
      const connection = redis.connect();
      connections.push(connection);
      return connection;
    };
    scheduler = openTestScheduler(redis, { connect, leaseMs: 1200 });
    const lease = await scheduler.runtimes.acquire({ name: 'leaving', slots: 1 });
    // The connection for leases was opened last, by `acquire`.
    const leaseConnection = connections.at(-1) ?? assert.fail('no connection');
    const renewing = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    const { set } = leaseConnection;
    leaseConnection.set = (async (...args: Parameters<typeof set>) => {
      const reply = await set.apply(leaseConnection, args);
      renewing.resolve();
      await answered.promise;
      return reply;
    }) as typeof set;
    // After a reconnection, the next renewal stores the load and the description again.
    leaseConnection.emit('ready');
    await renewing.promise;
    await lease.release();
    answered.resolve();
    await setImmediate();
    // If the renewal registered the runtime now, Redis would handle the registration before this ping.
    await leaseConnection.ping();
    await lease.describe({ slots: 2 });
    assert.deepEqual(await scheduler.runtimes.list(), []);
  });

  test('a runtime that was declared dead learns of it when its description changes', async () => {
    // No renewal comes during the test.
    const log = new CollectedLog();
    scheduler = openTestScheduler(redis, { log });
    const lease = await scheduler.runtimes.acquire({ name: 'frozen', slots: 1 });
    try {
      let losses = 0;
      lease.onLost(() => losses++);
      for (const deaths of [1, 2]) {
        await scheduler.runtimes.recover(lease.id);
        await Promise.all([lease.describe({ pace: deaths }), lease.describe({ slots: 2 })]);
        assert.equal(losses, deaths);
        const registered = (await scheduler.runtimes.alive()).map(({ id, pace, slots }) => ({ id, pace, slots }));
        assert.deepEqual(registered, [{ id: lease.id, pace: deaths, slots: 2 }]);
      }
      const own = log.records.filter(({ message }) => message.startsWith('this runtime was declared lost'));
      assert.deepEqual(
        own.map(({ fields }) => [fields.runtime, typeof fields.silentMs]),
        [1, 2].map(() => [lease.id, 'number']),
      );
    } finally {
      await lease.release();
    }
  });

  test('a renewal that fails is reported once, and renewals go on', async () => {
    const log = new CollectedLog();
    const { errors } = log;
    scheduler = openTestScheduler(redis, { leaseMs: 800, log });
    const { redis: client, keys } = scheduler.store;
    const lease = await scheduler.runtimes.acquire({ name: 'reported', slots: 1 });
    let loadReads = 0;
    lease.reportLoad(() => {
      loadReads += 1;
      throw new Error('no load');
    });
    await eventually(() => loadReads >= 3, 'three renewals');
    assert.deepEqual(
      errors.map(String).filter((error) => !error.includes('no load')),
      [],
    );
    assert.equal(errors.length, 1);
    lease.reportLoad(() => ({ running: 3 }));
    await eventually(async () => (await client.get(keys.alive(lease.id))) === '{"running":3}', 'the next load');
    await lease.release();
  });

  test('a runtime repeats its description after Redis has lost it', async () => {
    scheduler = openTestScheduler(redis, { leaseMs: 1200 });
    const lease = await scheduler.runtimes.acquire({ name: 'speaking', slots: 1 });
    await losingWrites(redis, () => lease.describe({ slots: 2 }));
    const slots = async () => (await scheduler.runtimes.list()).map((runtime) => runtime.slots);
    await eventually(async () => (await slots()).join() === '2', 'the description is stored again');
    await lease.release();
  });
});
