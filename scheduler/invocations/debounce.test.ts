import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import { openScheduler, type Scheduler } from '../scheduler.ts';
import { beginAttempt, collect, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { Submission } from './submission.ts';

const SECOND = 1000;
const HOUR = 3_600_000;

describe('debounce', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  /** The clock of the platform under test, milliseconds. */
  let now = Date.now();
  const open = () => openTestScheduler(redis, { clock: () => now, prefix: 'debounce' });
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = open();
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  const debounced = (key: string, options: Partial<Submission> = {}) =>
    submission({
      submittedAt: now,
      deadlineMs: 2 * HOUR,
      debounce: { key, delayMs: 10 * SECOND, maxMs: 25 * SECOND },
      ...options,
    });
  const submit = async (key: string, options: Partial<Submission> = {}) => {
    const record = debounced(key, options);
    assert.ok((await scheduler.invocations.create(record)).created);
    return record;
  };
  const counts = async (tenant = 'default') => {
    const { keys, redis: client } = scheduler.store;
    const [entries, keysHeld, queued] = await Promise.all([
      client.zcard(keys.debounced),
      client.hlen(keys.debounces(tenant)),
      client.zcard(keys.waiting(tenant)),
    ]);
    return { entries, keys: keysHeld, queued };
  };
  const terminalData = async (id: string) => {
    const events = await collect(scheduler.events.follow(id, 0));
    assert.equal(events.length, 1, 'exactly one terminal event');
    return JSON.parse(events[0]?.data ?? '');
  };

  test('a later invocation takes the place of the waiting one, restarts the delay up to the maximum, and runs once', async () => {
    const { invocations } = scheduler;
    const first = await submit('doc-1', { input: '{"text":1}' });
    const following = collect(scheduler.events.follow(first.id, 0));
    assert.equal((await invocations.get(first.id))?.notBefore, now + 10 * SECOND);
    now += 8 * SECOND;
    const second = await submit('doc-1', { input: '{"text":2}' });
    assert.deepEqual(JSON.parse((await following)[0]?.data ?? ''), {
      code: 'superseded',
      message: `A later invocation with the same debounce key takes its place: ${second.id}.`,
      successor: second.id,
    });
    const record = await invocations.get(first.id);
    assert.deepEqual(
      [record?.status, record?.failure?.code, record?.successor],
      ['cancelled', 'superseded', second.id],
    );
    now += 8 * SECOND;
    assert.equal(
      await invocations.releaseDebounced(),
      0,
      'the delay of the first invocation has passed, but not that of the second',
    );
    const third = await submit('doc-1', { input: '{"text":3}' });
    assert.equal(
      (await invocations.get(third.id))?.notBefore,
      now + 9 * SECOND,
      'the delay ends 25 s after the first submission, which was 16 s ago',
    );
    assert.equal((await terminalData(second.id)).successor, third.id);
    assert.deepEqual(await counts(), { entries: 1, keys: 1, queued: 0 });

    const undelayed = submission({ submittedAt: now });
    const { arrival } = (await invocations.create(undelayed)) as { arrival: number };
    now += 9 * SECOND;
    assert.equal(await invocations.releaseDebounced(), 1);
    assert.equal(await invocations.releaseDebounced(), 0);
    assert.deepEqual(await counts(), { entries: 0, keys: 0, queued: 2 });
    const released = await invocations.get(third.id);
    assert.ok(released?.status === 'queued' && released.notBefore === null);
    assert.ok(
      released.arrival > arrival,
      'a debounced invocation arrives when it is released, so it queues behind the other one',
    );
    const [job] = await scheduler.store.redis.hmget(`${scheduler.store.keys.jobs}:${third.id}`, 'data');
    assert.equal(JSON.parse(job ?? '').arrival, released.arrival);
    const attempt = await beginAttempt(scheduler, third.id, 'r1');
    assert.ok('epoch' in attempt);
    assert.equal(attempt.queuedAt, now, 'the delay does not count as time in the queue');
    await invocations.finish(third.id, attempt.epoch, 1, { event: 'result', data: '{"output":3}' }, null);
    await scheduler.control.requestCancel(undelayed.id, 'x');
    await submit('doc-1');
    assert.deepEqual(await counts(), { entries: 1, keys: 1, queued: 0 }, 'the next one with the key is delayed again');
  });

  test('invocations of other functions, keys and tenants do not replace each other', async () => {
    const before = await Promise.all(['default', 'b'].map(counts));
    const records = [
      await submit('same'),
      await submit('same', { function: 'other' }),
      await submit('same', { tenant: 'b' }),
    ];
    for (const { id } of records) {
      assert.equal((await scheduler.invocations.get(id))?.status, 'queued');
      assert.equal(await scheduler.control.requestCancel(id, 'enough'), 'cancelled');
      assert.equal((await terminalData(id)).code, 'cancelled');
    }
    assert.deepEqual(await Promise.all(['default', 'b'].map(counts)), before);
  });

  test('an invocation that ends during its delay frees its debounce key, and no later invocation supersedes it', async () => {
    const cancelled = await submit('reused');
    await scheduler.control.requestCancel(cancelled.id, 'enough');
    const overdue = await submit('overdue');
    await scheduler.invocations.fail(overdue.id, 'deadline-exceeded', 'late');
    const keysBefore = (await counts()).keys;
    const next = await submit('reused');
    assert.equal((await counts()).keys, keysBefore + 1);
    assert.equal((await scheduler.invocations.get(cancelled.id))?.successor, null);
    assert.equal((await terminalData(overdue.id)).code, 'deadline-exceeded');
    await scheduler.control.requestCancel(next.id, 'enough');
    assert.equal((await counts()).keys, keysBefore);
  });

  test('another process releases the waiting invocations after a restart of Redis and of the platform', async () => {
    const { id } = await submit('restart');
    await scheduler.close();
    await redis.restart();
    scheduler = open();
    assert.equal((await scheduler.admission.repair())?.returned, 0, 'the repair does not end the delay');
    assert.equal((await counts()).queued, 0);
    now += 10 * SECOND;
    const reaping = openScheduler({
      log: silentLog,
      connect: redis.connect,
      clock: () => now,
      prefix: 'debounce',
      leaseMs: 500,
    });
    reaping.reaper.start();
    const { keys, redis: client } = scheduler.store;
    await eventually(async () => (await client.zscore(keys.waiting('default'), id)) !== null, 'a reaper releases it');
    await reaping.close();
  });

  test('a debounced invocation counts against quotas, a refused successor replaces nothing, and the keys of a tenant are bounded', async () => {
    const { invocations, quotas } = scheduler;
    const tenant = 'bounded';
    const set = (quota: 'waiting-invocations' | 'requests-per-minute', limit: number) =>
      quotas.set(tenant, { quota, function: null, limit, until: null }, { author: 'key', reason: '' });
    await set('waiting-invocations', 1);
    const first = await submit('a', { tenant });
    await assert.rejects(invocations.create(debounced('b', { tenant })), { code: 'quota-exceeded' });
    await assert.rejects(invocations.create(submission({ tenant })), { code: 'quota-exceeded' });
    const concurrency = { key: 'one', limit: 1 };
    // The third invocation replaces the second one, so each has room under a concurrency limit of one.
    const second = await submit('a', { tenant, concurrency });
    const third = await submit('a', { tenant, concurrency });
    // The tenant has made three requests, so the next one is refused.
    await set('requests-per-minute', 3);
    await assert.rejects(invocations.create(debounced('a', { tenant })), { code: 'quota-exceeded' });
    assert.equal((await invocations.get(third.id))?.status, 'queued');
    for (const { id } of [first, second]) assert.equal((await terminalData(id)).code, 'superseded');

    const { redis: client, keys } = scheduler.store;
    // As many keys as a tenant may have (`MAX_DEBOUNCE_KEYS` in submission.lua). An invocation may use one of them again.
    const existingEntries = Array.from({ length: 1000 }, (_, i) => [`story k${i}`, `inv-${i} ${now}`]).flat();
    await client.hset(keys.debounces('full'), ...existingEntries);
    await assert.rejects(invocations.create(debounced('more', { tenant: 'full' })), { code: 'debounce-keys-full' });
    await submit('k1', { tenant: 'full' });
  });

  test('one round releases all invocations with large inputs, although one script call releases only some', async () => {
    const input = JSON.stringify('x'.repeat(900_000));
    const submitted = [];
    for (const key of ['large-1', 'large-2', 'large-3', 'large-4']) submitted.push(await submit(key, { input }));
    now += 60 * SECOND;
    assert.ok(
      (await scheduler.invocations.releaseDebounced()) >= submitted.length,
      'earlier tests may have left some more',
    );
    for (const { id } of submitted) assert.equal((await scheduler.invocations.get(id))?.notBefore, null);
  });

  test('one round releases 150 invocations, although one script call releases only some', async () => {
    const tenant = 'many';
    const count = 150;
    await Promise.all(Array.from({ length: count }, (_, i) => submit(`k${i}`, { tenant })));
    now += 10 * SECOND;
    assert.ok((await scheduler.invocations.releaseDebounced()) >= count, 'earlier tests may have left some more');
    const { keys, queued } = await counts(tenant);
    assert.deepEqual({ keys, queued }, { keys: 0, queued: count });
  });
});
