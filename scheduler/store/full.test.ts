import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { RuntimeLease } from '../runtimes/lease.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { StoreError } from './errors.ts';

const isFull = (error: unknown) => error instanceof StoreError && error.code === 'store-unavailable' && error.full;

describe('Redis at its memory limit', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  const leases: RuntimeLease[] = [];
  before(async () => {
    redis = await TestRedis.start();
    // Both times are longer than the platform's defaults, since the machine may be busy. The lease is shorter than in other tests, since this test
    // waits for a renewal.
    scheduler = openTestScheduler(redis, { leaseMs: 6000, deadlineMs: 60_000 });
  });
  after(async () => {
    await Promise.all(leases.map((lease) => lease.release()));
    await scheduler.close();
    await redis.stop();
  });

  test('refuses new data, accepts ends and leases, and accepts data again once it has room', async () => {
    const { invocations, files, inbox, messaging, runtimes, control } = scheduler;
    const { redis: client, keys } = scheduler.store;
    const lease = await runtimes.acquire({ name: 'r', slots: 3, accepting: true });
    leases.push(lease);
    const begin = async () => {
      const record = submission();
      await invocations.create(record);
      const begun = await beginAttempt(scheduler, record.id, 'r1');
      assert.ok('epoch' in begun);
      return { id: record.id, epoch: begun.epoch };
    };
    const [first, second, third] = [await begin(), await begin(), await begin()];
    const waiting = submission();
    await invocations.create(waiting);
    assert.equal((await messaging.queues.push('t', 'line', { sender: 's', message: { text: 'before' } })).kind, 'ok');
    assert.equal(await inbox.push(first.id, { text: 'before' }), 'ok');
    assert.equal(await files.put(third.id, 'f', 'text/plain', new Uint8Array(3)), 'ok');
    await scheduler.keyValues.write('t', 'k', new Uint8Array(10));
    const removed = { name: 'f', version: 'v', tenant: 't', manifest: { name: 'f' }, componentHash: 'none' };
    await client.hset(keys.removedVersions('t', 'f'), 'v', JSON.stringify(removed));
    await client.hset(keys.removals, 't/f', 'drain', 't/f@v', 'now');
    await scheduler.quotas.setDefaults({ 'kv-pages': 100 });
    const subscription = messaging.broadcasts.subscribe('t', 'topic');
    await subscription.ready;
    const broadcast = (text: string) =>
      messaging.broadcasts.broadcast('t', 'topic', { sender: 's', message: { text } });
    const concurrency = { key: 'one', limit: 1 };
    await client.sadd(keys.concurrency('default', concurrency.key), 'lost');
    // A separate connection sends the filler and is then closed, since Redis keeps a large buffer for a connection that has sent so much.
    const filling = client.duplicate();
    await filling.set('filler', Buffer.alloc(8 * 2 ** 20));
    await filling.quit();
    await client.config('SET', 'maxmemory', '6mb');

    const event = { event: 'message', data: '{"text":"x"}' } as const;
    for (const write of [
      () => invocations.create(submission()),
      // Redis has lost the record of the invocation that holds the key.
      () => invocations.create(submission({ concurrency })),
      () => invocations.append(first.id, first.epoch, 1, [event]),
      () => files.put(first.id, 'f', 'text/plain', new Uint8Array(10)),
      () => inbox.push(first.id, { text: 'x' }),
      () => messaging.queues.push('t', 'line', { sender: 's', message: { text: 'x' } }),
      () => broadcast('x'),
      () =>
        client
          .multi()
          .set('a', '1')
          .exec()
          .catch((error) => Promise.reject(StoreError.from(error))),
    ]) {
      await assert.rejects(write, isFull);
    }
    await assert.rejects(invocations.create(submission()), { message: /memory of Redis is used up.*max_memory_mb/ });

    assert.equal(await control.requestCancel(first.id, 'enough'), 'requested');
    assert.equal(await control.requestCancel(waiting.id, 'enough'), 'cancelled');
    assert.equal((await files.get(third.id, 'f'))?.content.length, 3);
    await inbox.close(first.id);
    const [quota] = await scheduler.quotas.status('default');
    assert.deepEqual([quota?.quota, quota?.used], ['kv-pages', 0]);
    assert.ok(await scheduler.keyValues.delete('t', 'k'));
    await scheduler.keyValues.sweep();
    await scheduler.removals.sweep();
    assert.equal(await client.exists(keys.removals), 0);
    const result = { event: 'result', data: '{}' } as const;
    assert.equal(await invocations.finish(first.id, first.epoch, 1, result, null), 'ok');
    assert.equal(await invocations.fail(second.id, 'internal', 'over'), 'ok');
    assert.ok(await messaging.queues.pull('t', 'line', AbortSignal.timeout(240_000)));
    await client.del(keys.alive(lease.id));
    await eventually(async () => (await client.exists(keys.alive(lease.id))) === 1, 'the lease is renewed');
    const lost = new Promise<void>((resolve) => {
      lease.onLost(resolve);
    });
    const successor = await runtimes.acquire({ name: 'r', slots: 1 });
    leases.push(successor);
    await lost;
    await eventually(
      async () => (await runtimes.alive()).some(({ id }) => id === successor.id),
      'the successor is alive',
    );

    await client.del('filler');
    assert.equal(await broadcast('after'), 1);
    const heard = await subscription.next();
    assert.deepEqual(
      heard.kind === 'message' && heard.envelope.message,
      { text: 'after' },
      'the refused broadcast does not arrive later',
    );
    assert.equal(await invocations.append(third.id, third.epoch, 1, [event]), 'ok');
    await begin();
  });
});
