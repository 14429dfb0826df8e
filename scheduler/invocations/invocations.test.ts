import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { SequenceGap, StoreError } from '../store/errors.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { endMessage } from './endings.ts';
import type { NewEvent, TerminalEvent } from './types.ts';

const RESULT: TerminalEvent = { event: 'result', data: '{"output":1}' };
const message = (text: string): NewEvent => ({ event: 'message', data: JSON.stringify({ text }) });

async function beginOne(
  scheduler: Scheduler,
  options: { restartable?: boolean } = {},
): Promise<{ id: string; epoch: number }> {
  const record = submission(options);
  await scheduler.invocations.create(record);
  const attempt = await beginAttempt(scheduler, record.id, 'r1');
  assert.ok('epoch' in attempt);
  return { id: record.id, epoch: attempt.epoch };
}

describe('invocations', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let other: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
    other = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix });
  });
  after(async () => {
    await scheduler.close();
    await other.close();
    await redis.stop();
  });

  test('the input of an ended invocation is kept as long as its events, unless it is large', async () => {
    const { invocations, store } = scheduler;
    for (const [characters, isKept] of [
      [10, true],
      [20_000, false],
    ] as const) {
      const input = JSON.stringify('é"'.repeat(characters / 2));
      const record = submission({ input });
      await invocations.create(record);
      assert.equal(await invocations.input(record.id), input);
      const attempt = await beginAttempt(scheduler, record.id, 'r1');
      assert.ok('epoch' in attempt);
      await invocations.finish(record.id, attempt.epoch, 1, RESULT, null);
      assert.equal(await invocations.input(record.id), isKept ? input : null);
      const [inputMs, eventsMs] = await Promise.all(
        [store.keys.input(record.id), store.keys.events(record.id)].map((key) => store.redis.pttl(key)),
      );
      if (isKept) assert.ok(Math.abs((inputMs ?? 0) - (eventsMs ?? 0)) < 1000);
    }
    assert.equal(await invocations.input('inv-nothing'), null);
  });

  test('a tenant has at most its quota of waiting invocations under concurrent submissions', async () => {
    const { invocations } = scheduler;
    const { tenant } = submission();
    const bounded = () => ({ ...submission(), tenant: `${tenant}-bounded` });
    const bound = { quota: 'waiting-invocations', function: null, limit: 3, until: null } as const;
    await scheduler.quotas.set(`${tenant}-bounded`, bound, { author: 'key', reason: '' });
    const records = Array.from({ length: 8 }, bounded);
    const outcomes = await Promise.allSettled(
      records.map((record, i) => (i % 2 === 0 ? scheduler : other).invocations.create(record)),
    );
    assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 3);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') assert.equal(outcome.reason.code, 'quota-exceeded');
    }
    const [first, second] = records.filter((_, i) => outcomes[i]?.status === 'fulfilled');
    const refused = records.find((_, i) => outcomes[i]?.status === 'rejected');
    assert.ok(first && second && refused);
    assert.equal(await invocations.get(refused.id), null);
    await assert.rejects(invocations.create(bounded()), { code: 'quota-exceeded' });
    assert.ok((await invocations.create(first)).created, 'a repeated command creates no second invocation');
    assert.ok((await invocations.create(submission())).created, 'another tenant has its own quota');

    assert.ok('epoch' in (await beginAttempt(scheduler, first.id, 'r1')));
    assert.ok((await invocations.create(bounded())).created, 'the first one no longer waits');
    await scheduler.cancel(second.id, 'changed my mind');
    assert.ok((await invocations.create(bounded())).created, 'the cancelled one no longer waits');
    await assert.rejects(invocations.create(bounded()), { code: 'quota-exceeded' });
  });

  test('submissions that wait in this process are dropped at their deadline instead of stored late', async () => {
    const hasty = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, deadlineMs: 100 });
    await hasty.store.redis.ping();
    const client = redis.connect();
    await client.client('PAUSE', 600_000, 'WRITE');
    // Eight submissions of a tenant reach Redis at once. Each pause of this process while it submits gives the later submissions a later deadline, so
    // eight more may reach Redis. 120 submissions leave room for several pauses.
    const records = Array.from({ length: 120 }, () => submission({ tenant: 'flooding' }));
    const outcomes = await Promise.allSettled(records.map((record) => hasty.invocations.create(record)));
    await client.client('UNPAUSE');
    for (const outcome of outcomes)
      assert.equal(outcome.status === 'rejected' && outcome.reason.code, 'store-unavailable');
    // Redis still runs the calls that were in flight at the deadline.
    const { invocations } = await scheduler.invocations.list('flooding', { limit: 100 });
    assert.ok(invocations.length < records.length / 2, `${invocations.length} of ${records.length} were stored`);
    await hasty.close();
  });

  test('a record goes from queued through running to succeeded', async () => {
    const { invocations } = scheduler;
    const record = submission({ function: 'whole' });
    assert.equal(await invocations.get(record.id), null);
    const created = await invocations.create(record);
    assert.ok(created.created);
    assert.deepEqual(await invocations.create(record), created, 'a repeated command has the same answer');
    const queued = await invocations.get(record.id);
    assert.equal(queued?.status, 'queued');
    assert.equal(queued?.arrival, created.arrival);
    const attempt = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in attempt);
    const { epoch } = attempt;
    assert.ok(attempt.kvPages.readAt > 1e12, 'milliseconds of the clock of Redis');
    const unlimited = { tokenCeiling: null, kvPages: { ...attempt.kvPages, pages: null } };
    assert.deepEqual(attempt, {
      epoch,
      nextSeq: 1,
      attempt: 1,
      queuedAt: record.submittedAt,
      usageBefore: null,
      standing: 'clear',
      ...unlimited,
    });
    assert.equal((await invocations.get(record.id))?.epoch, epoch);
    assert.equal(await invocations.append(record.id, epoch, 1, [message('a'), message('b')]), 'ok');
    assert.equal(await invocations.finish(record.id, epoch, 3, RESULT, { outputTokens: 2 }), 'ok');
    const ended = await invocations.get(record.id);
    assert.equal(ended?.status, 'succeeded');
    assert.deepEqual(ended?.usage, { outputTokens: 2 });
    assert.equal(ended?.seq, 3);
    const events = await scheduler.events.read(record.id, 0);
    assert.deepEqual(
      events.map(({ seq, event }) => [seq, event]),
      [
        [1, 'message'],
        [2, 'message'],
        [3, 'result'],
      ],
    );
    assert.equal(await invocations.append(record.id, epoch, 4, [message('c')]), 'ended');
    assert.deepEqual(await beginAttempt(scheduler, record.id, 'r2'), { refused: 'ended' });
    assert.deepEqual((await invocations.recent('default', 'whole', 1))[0]?.id, record.id);
  });

  test('arrivals grow, and an idempotency key finds the first request of its tenant', async () => {
    const { invocations } = scheduler;
    const first = submission({ idempotencyKey: 'k1' });
    const second = submission({ idempotencyKey: 'k1' });
    const elsewhere = submission({ idempotencyKey: 'k1', tenant: 'other' });
    const created = await invocations.create(first);
    assert.deepEqual(await invocations.create(second), { created: false, id: first.id, quotas: [] });
    assert.equal(await invocations.get(second.id), null);
    const third = await invocations.create(elsewhere);
    assert.ok(created.created && third.created && third.arrival > created.arrival);
  });

  test('when several calls of two connections end an invocation at once, exactly one takes effect', async () => {
    for (let round = 0; round < 20; round += 1) {
      const { id, epoch } = await beginOne(scheduler);
      const outcomes = await Promise.all([
        ...[scheduler, other, scheduler, other].map(({ invocations }, i) =>
          invocations.finish(id, epoch, 1, { event: 'result', data: `{"by":${i}}` }, null),
        ),
        other.invocations.fail(id, 'runtime-lost', 'gone'),
        scheduler.control.requestCancel(id, 'no more'),
      ]);
      const events = await scheduler.events.read(id, 0);
      assert.equal(events.length, 1, `one terminal event, got ${JSON.stringify(events)} for ${outcomes}`);
      const record = await scheduler.invocations.get(id);
      assert.equal(record?.seq, 1);
      assert.equal(record?.status, events[0]?.event === 'result' ? 'succeeded' : 'failed');
    }
  });

  test('a repeated end with the same number is ok, and one with another number is refused', async () => {
    const { id, epoch } = await beginOne(scheduler);
    assert.equal(await scheduler.invocations.finish(id, epoch, 1, RESULT, null), 'ok');
    assert.equal(await scheduler.invocations.finish(id, epoch, 1, RESULT, null), 'ok');
    assert.equal(await scheduler.invocations.finish(id, epoch, 2, RESULT, null), 'ended');
    assert.equal(await scheduler.invocations.fail(id, 'internal', 'x'), 'ended');
    assert.equal((await scheduler.events.read(id, 0)).length, 1);
  });

  test('beginning again with the same token returns the same attempt, and another token is refused', async () => {
    const record = submission();
    await scheduler.invocations.create(record);
    const first = await beginAttempt(scheduler, record.id, 'r1', 'token');
    const again = await beginAttempt(scheduler, record.id, 'r1', 'token');
    assert.ok('epoch' in first && 'epoch' in again);
    assert.deepEqual({ ...again, kvPages: first.kvPages }, first);
    assert.deepEqual(await beginAttempt(scheduler, record.id, 'r1'), { refused: 'already-ran' });
  });

  test('an attempt with a stale epoch, or of an ended invocation, can neither append nor finish', async () => {
    const { id, epoch } = await beginOne(scheduler);
    assert.equal(await scheduler.invocations.append(id, epoch - 1, 1, [message('x')]), 'stale');
    assert.equal(await scheduler.invocations.fail(id, 'runtime-lost', 'gone'), 'ok');
    assert.equal(await scheduler.invocations.append(id, epoch, 1, [message('x')]), 'ended');
    assert.equal(await scheduler.invocations.finish(id, epoch, 1, RESULT, null), 'ended');
    const [event, ...more] = await scheduler.events.read(id, 0);
    assert.deepEqual(more, []);
    const text = endMessage({ code: 'runtime-lost', cause: 'gone', figures: {} });
    assert.deepEqual(JSON.parse(event?.data ?? ''), { code: 'runtime-lost', message: text });
    const unknown = await scheduler.invocations.append('nobody', 1, 1, [message('x')]);
    assert.equal(unknown, 'stale');
    assert.equal(await scheduler.invocations.fail('nobody', 'internal', 'x'), 'unknown');
    assert.deepEqual(await beginAttempt(scheduler, 'nobody', 'r'), { refused: 'unknown' });
  });

  test('an invocation that is not restartable begins once', async () => {
    const { id } = await beginOne(scheduler);
    assert.deepEqual(await beginAttempt(scheduler, id, 'r2'), { refused: 'already-ran' });
    // The attempt is refused even if the record says `queued` again.
    await scheduler.store.redis.hset(scheduler.store.keys.invocation(id), 'status', 'queued');
    assert.deepEqual(await beginAttempt(scheduler, id, 'r2'), { refused: 'already-ran' });
  });

  test('`fail` for one runtime ends no attempt of another one, and a second cancel keeps the first reason', async () => {
    const { invocations, control } = scheduler;
    const { id, epoch } = await beginOne(scheduler, { restartable: true });
    assert.equal(await invocations.fail(id, 'runtime-lost', 'gone', 'r2'), 'ended');
    assert.equal((await invocations.get(id))?.status, 'running');
    for (const reason of ['enough', 'more than enough'])
      assert.equal(await control.requestCancel(id, reason), 'requested');
    assert.equal((await invocations.get(id))?.cancelReason, 'enough');
    assert.equal(await invocations.requeue(id, epoch, 1, 'room for others', null), 'cancelled');
    assert.equal((await invocations.get(id))?.status, 'running', 'the attempt must end itself');
    assert.equal(await invocations.fail(id, 'runtime-lost', 'gone', 'r1'), 'ok');
  });

  test('a child begins only while the attempt of its parent runs', async () => {
    const { id, epoch } = await beginOne(scheduler);
    const child = () => ({ ...submission(), parent: id, root: id, arrival: 1, runtimeId: 'r1' });
    const begin = (parentEpoch: number) => scheduler.invocations.beginChild({ ...child(), parentEpoch }, 'token');
    assert.deepEqual(await begin(epoch - 1), { refused: 'parent-ended' });
    assert.ok('epoch' in (await begin(epoch)));
    await scheduler.invocations.finish(id, epoch, 1, RESULT, null);
    assert.deepEqual(await begin(epoch), { refused: 'parent-ended' });
  });

  test('an invocation whose error has the code `cancelled` is cancelled; with any other error it has failed', async () => {
    for (const [code, status] of [
      ['cancelled', 'cancelled'],
      ['cpu-limit', 'failed'],
    ] as const) {
      const { id, epoch } = await beginOne(scheduler);
      const terminal: TerminalEvent = { event: 'error', data: JSON.stringify({ code }), code, message: 'because' };
      assert.equal(await scheduler.invocations.finish(id, epoch, 1, terminal, null), 'ok');
      const record = await scheduler.invocations.get(id);
      assert.equal(record?.status, status);
      assert.deepEqual(record?.failure, { code, message: 'because' });
    }
  });

  test('append and finish report the last number at a gap, refuse invalid data, and then write nothing', async () => {
    const { id, epoch } = await beginOne(scheduler);
    const invalid = (error: unknown) => error instanceof StoreError && error.code === 'invalid-argument';
    const gapAfter = (lastSeq: number) => (error: unknown) =>
      error instanceof SequenceGap && error.code === 'sequence-gap' && error.lastSeq === lastSeq;
    await assert.rejects(scheduler.invocations.append(id, epoch, 2, [message('x')]), gapAfter(0));
    await assert.rejects(scheduler.invocations.finish(id, epoch, 2, RESULT, null), gapAfter(0));
    await assert.rejects(scheduler.invocations.append(id, epoch, 1, [{ event: 'message', data: '\0' }]), invalid);
    assert.deepEqual(await scheduler.events.read(id, 0), []);
    assert.equal(await scheduler.invocations.append(id, epoch, 1, [message('x'), message('y')]), 'ok');
    await assert.rejects(scheduler.invocations.finish(id, epoch, 2, RESULT, null), gapAfter(2));
    await assert.rejects(scheduler.invocations.append(id, epoch, 4, [message('z')]), gapAfter(2));
  });

  test('a log is bounded in bytes, and an append beyond the bound writes nothing', async () => {
    const small = openTestScheduler(redis, { retention: { maxBytes: 50 } });
    try {
      const { id, epoch } = await beginOne(small);
      assert.equal(await small.invocations.append(id, epoch, 1, [message('a'.repeat(30))]), 'ok');
      assert.equal(await small.invocations.append(id, epoch, 2, [message('b'), message('c')]), 'full');
      assert.equal((await small.events.read(id, 0)).length, 1);
      assert.equal(await small.invocations.finish(id, epoch, 2, RESULT, null), 'ok');
    } finally {
      await small.close();
    }
  });

  test('all logs of a family share one bound that also counts results; an error always fits', async () => {
    const small = openTestScheduler(redis, { retention: { familyBytes: 1000 } });
    // Each event counts 64 bytes more than its data, and the data of a `message` has 11 bytes more than its text. So the first child's events take
    // 375 and 464 of the 1,000 bytes. The next 175 (a message) and 174 (a result) do not fit into the rest of 161; 74 do.
    const resultOf = (bytes: number): TerminalEvent => ({ event: 'result', data: `"${'x'.repeat(bytes - 2)}"` });
    try {
      const root = await beginOne(small);
      const children = await Promise.all(
        [1, 2].map(async (i) => {
          const record = { ...submission(), parent: root.id, parentEpoch: root.epoch, root: root.id };
          const child = await small.invocations.beginChild({ ...record, arrival: 1, runtimeId: 'r1' }, `token ${i}`);
          assert.ok('epoch' in child);
          return { id: record.id, epoch: child.epoch };
        }),
      );
      const [first, second] = children;
      assert.ok(first && second);
      assert.equal(await small.invocations.append(first.id, first.epoch, 1, [message('a'.repeat(300))]), 'ok');
      assert.equal(await small.invocations.finish(first.id, first.epoch, 2, resultOf(400), null), 'ok');
      assert.equal(await small.invocations.append(second.id, second.epoch, 1, [message('a'.repeat(100))]), 'full');
      assert.equal(await small.invocations.finish(root.id, root.epoch, 1, resultOf(110), null), 'full');
      assert.equal(await small.invocations.finish(root.id, root.epoch, 1, resultOf(10), null), 'ok');
      const error: TerminalEvent = { event: 'error', data: '{}', code: 'output-limit', message: 'm'.repeat(400) };
      assert.equal(await small.invocations.finish(second.id, second.epoch, 1, error, null), 'ok');
      const otherRoot = await beginOne(small);
      const events = [message('a'.repeat(300))];
      assert.equal(
        await small.invocations.append(otherRoot.id, otherRoot.epoch, 1, events),
        'ok',
        'another family has room',
      );
    } finally {
      await small.close();
    }
  });

  test('the cancel of a running invocation stays in the list of its runtime until the invocation ends', async () => {
    const { redis: client, keys } = scheduler.store;
    const cancels = () => client.hgetall(keys.cancels('r1'));
    const { id, epoch } = await beginOne(scheduler);
    assert.equal(await scheduler.control.requestCancel(id, 'enough'), 'requested');
    assert.deepEqual(await cancels(), { [id]: 'enough' });
    assert.equal(await scheduler.invocations.finish(id, epoch, 1, RESULT, null), 'ok');
    assert.deepEqual(await cancels(), {});
    assert.equal(await scheduler.control.requestCancel(id, 'enough'), 'ended');
    assert.deepEqual(await cancels(), {});
  });

  test('an ended invocation expires with the retention, and a running one does not expire', async () => {
    const keeping = openTestScheduler(redis, { retention: { recordMs: 60_000, eventsMs: 30_000 } });
    try {
      const { id, epoch } = await beginOne(keeping);
      await keeping.invocations.append(id, epoch, 1, [message('a')]);
      const { keys, redis: client } = keeping.store;
      await keeping.inbox.push(id, { text: 'x' });
      assert.equal(await client.pttl(keys.invocation(id)), -1);
      assert.equal(await client.zcard(keys.deadlines), 1);
      await keeping.invocations.finish(id, epoch, 2, RESULT, null);
      const [recordMs, eventsMs] = [await client.pttl(keys.invocation(id)), await client.pttl(keys.events(id))];
      assert.ok(recordMs > 30_000 && recordMs <= 60_000, `${recordMs}`);
      assert.ok(eventsMs > 0 && eventsMs <= 30_000, `${eventsMs}`);
      assert.equal(await client.exists(keys.inbox(id)), 0);
      assert.equal(await client.zcard(keys.deadlines), 0);
    } finally {
      await keeping.close();
    }
  });

  test('the log has each event once and in order, whichever calls are repeated', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 0, max: 6 })), {
          minLength: 1,
          maxLength: 12,
        }),
        async (steps) => {
          const { id, epoch } = await beginOne(scheduler);
          const messages = Array.from({ length: 60 }, (_, i) => message(`event ${i + 1}`));
          let sent = 0;
          const calls: Promise<unknown>[] = [];
          for (const [newCount, repeatedCount] of steps) {
            const first = Math.max(1, sent + 1 - repeatedCount);
            sent += newCount;
            // Not awaited: later calls overlap with earlier ones, as those of a resending writer do.
            calls.push(scheduler.invocations.append(id, epoch, first, messages.slice(first - 1, sent)));
          }
          assert.deepEqual(new Set(await Promise.all(calls)), new Set(['ok']));
          const events = await scheduler.events.read(id, 0);
          assert.deepEqual(
            events,
            messages.slice(0, sent).map((event, i) => ({ seq: i + 1, epoch, ...event })),
          );
        },
      ),
      { seed: 20261102, numRuns: 60 },
    );
  });

  test('many events in one call are appended in order', async () => {
    const { id, epoch } = await beginOne(scheduler);
    const messages = Array.from({ length: 2500 }, (_, i) => message(`${i}`));
    assert.equal(await scheduler.invocations.append(id, epoch, 1, messages), 'ok');
    const read = [];
    for (let after = 0; ; after = read.length) {
      const events = await scheduler.events.read(id, after);
      if (events.length === 0) break;
      read.push(...events);
    }
    assert.deepEqual(
      read.map(({ data }) => data),
      messages.map(({ data }) => data),
    );
  });
});
