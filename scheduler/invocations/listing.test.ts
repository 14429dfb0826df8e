import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { fingerprintOf } from './submission.ts';
import { hasEnded, type InvocationStatus, type ListQuery } from './types.ts';

describe('lists of invocations', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  async function listAll(tenant: string, query: ListQuery): Promise<string[]> {
    const ids: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await scheduler.invocations.list(tenant, { ...query, cursor });
      ids.push(...page.invocations.map(({ id }) => id));
      cursor = page.cursor ?? undefined;
    } while (cursor !== undefined);
    return ids;
  }

  test('a list has exactly the invocations that its query selects, newest first, at any page size', async () => {
    const { invocations } = scheduler;
    let round = 0;
    const wantedRecord = fc.record({
      function: fc.constantFrom('story', 'poem'),
      // Few distinct times, so that many are equal.
      submittedAt: fc.integer({ min: 1, max: 4 }),
      status: fc.constantFrom<InvocationStatus>('queued', 'running', 'succeeded', 'failed', 'cancelled'),
    });
    const query = fc.record({
      function: fc.constantFrom(undefined, 'story', 'poem'),
      statuses: fc.subarray<InvocationStatus>(['queued', 'running', 'succeeded', 'failed', 'cancelled']),
      limit: fc.integer({ min: 1, max: 7 }),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(wantedRecord, { maxLength: 12 }),
        fc.array(query, { maxLength: 4 }),
        async (wanted, queries) => {
          const tenant = `t${++round}`;
          const records: { id: string; function: string; at: number; status: InvocationStatus }[] = [];
          for (const { function: name, submittedAt, status } of wanted) {
            const record = submission({ tenant, function: name, submittedAt: Date.now() - 10_000 + submittedAt });
            await invocations.create(record);
            if (status === 'cancelled') await scheduler.control.requestCancel(record.id, 'test');
            else if (status === 'failed') await invocations.fail(record.id, 'internal', 'test');
            else if (status !== 'queued') {
              const attempt = await beginAttempt(scheduler, record.id, 'r');
              assert.ok('epoch' in attempt);
              if (status === 'succeeded')
                await invocations.finish(record.id, attempt.epoch, 1, { event: 'result', data: '{}' }, null);
            }
            records.push({ id: record.id, function: name, at: record.submittedAt, status });
          }
          records.sort((a, b) => b.at - a.at || (a.id < b.id ? 1 : -1));
          for (const { function: name, statuses, limit } of queries) {
            const expected: string[] = records
              .filter((each) => name === undefined || each.function === name)
              .filter((each) => statuses.length === 0 || statuses.includes(each.status))
              .map(({ id }) => id);
            assert.deepEqual(await listAll(tenant, { function: name, statuses, limit }), expected);
          }
        },
      ),
      { numRuns: 25, seed: 5 },
    );
  });

  test('lists drop ended invocations beyond their bounds and age, and keep a queued one', async () => {
    const keeping = openTestScheduler(redis, {
      retention: { listedOfFunction: 3, listedOfTenant: 5, recordMs: 60_000 },
    });
    const { invocations, control } = keeping;
    const waiting = submission();
    await invocations.create(waiting);
    for (let i = 0; i < 8; i += 1) {
      const record = submission({ function: i % 2 === 0 ? 'story' : 'poem' });
      await invocations.create(record);
      await control.requestCancel(record.id, 'test');
    }
    const listed = async (query: Partial<ListQuery> = {}) =>
      (await invocations.list('default', { limit: 100, ...query })).invocations;
    // A list may exceed its bound by one until the next submission cuts it.
    assert.equal((await listed()).filter(({ status }) => hasEnded(status)).length, 6);
    assert.equal((await listed({ function: 'story', statuses: ['cancelled'] })).length, 4);
    assert.deepEqual(
      (await listed({ statuses: ['queued'] })).map(({ id }) => id),
      [waiting.id],
    );
    // Delete the records of all ended invocations but one, as their expiry would; the one stands for an invocation that ended much later. The next
    // submission is so late that all of them are older than `recordMs`.
    const { keys, redis: client } = keeping.store;
    const [kept, ...expired] = (await listed()).filter(({ status }) => hasEnded(status));
    assert.ok(kept);
    await client.del(...expired.map(({ id }) => keys.invocation(id)));
    const later = submission({ submittedAt: Date.now() + 120_000 });
    await invocations.create(later);
    assert.deepEqual(
      (await listed()).map(({ id }) => id),
      [later.id, kept.id, waiting.id],
    );
    assert.deepEqual(await client.zrange(`${keys.listing('default')}:ended`, '0', '-1'), [kept.id]);
    await keeping.close();
  });

  test('a list refuses a malformed cursor', async () => {
    for (const cursor of ['', 'x', '1', '1.', '1.a b', '+inf.a']) {
      await assert.rejects(scheduler.invocations.list('default', { limit: 1, cursor }), { code: 'invalid-argument' });
    }
  });

  test('an idempotency key belongs to one function and body, and expires some time after the end', async () => {
    const keeping = openTestScheduler(redis, { retention: { idempotencyMs: 20_000 } });
    const { invocations } = keeping;
    const idempotencyKey = 'once';
    const first = submission({ idempotencyKey, fingerprint: fingerprintOf('story', '{}'), deadlineMs: 60_000 });
    await invocations.create(first);
    const again = (name: string, body: string) =>
      invocations.create(submission({ idempotencyKey, fingerprint: fingerprintOf(name, body) }));
    const repeated = await again('story', '{}');
    assert.ok(!repeated.created && repeated.id === first.id);
    await assert.rejects(again('story', '{"a":1}'), { code: 'idempotency-key-reused' });
    await assert.rejects(again('poem', '{}'), { code: 'idempotency-key-reused' });
    assert.notEqual(fingerprintOf('a', 'b'), fingerprintOf('ab', ''));
    const { store } = keeping;
    const remainingMs = () =>
      store.call((connection) => connection.pttl(store.keys.idempotency('default', idempotencyKey)));
    assert.ok((await remainingMs()) > 20_000, 'the key outlasts the deadline');
    await invocations.fail(first.id, 'internal', 'test');
    const endedMs = await remainingMs();
    assert.ok(endedMs > 0 && endedMs <= 20_000, `${endedMs}`);
    await keeping.close();
  });

  test('an outcome can outlive its events', async () => {
    const keeping = openTestScheduler(redis, { retention: { eventsMs: 1, resultsMs: 60_000 } });
    const { invocations, events, store } = keeping;
    const record = submission();
    await invocations.create(record);
    const attempt = await beginAttempt(keeping, record.id, 'r');
    assert.ok('epoch' in attempt);
    await invocations.append(record.id, attempt.epoch, 1, [{ event: 'message', data: '{"text":"a"}' }]);
    await invocations.finish(record.id, attempt.epoch, 2, { event: 'result', data: '{"output":7}' }, null);
    const countLogs = () => store.call((connection) => connection.exists(store.keys.events(record.id)));
    await eventually(async () => (await countLogs()) === 0, 'the events expire');
    const replayed = [];
    for await (const event of events.follow(record.id, 0)) replayed.push(event);
    assert.deepEqual(replayed, [{ seq: 2, epoch: attempt.epoch, event: 'result', data: '{"output":7}' }]);
    assert.deepEqual(await events.terminal(record.id, { epoch: attempt.epoch, seq: 2 }), replayed[0]);
    await store.call((connection) => connection.del(store.keys.outcome(record.id)));
    await assert.rejects(events.follow(record.id, 0).next(), { code: 'invalid-argument' });
    await keeping.close();
  });
});
