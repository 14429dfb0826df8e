import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Resumption } from '../admission/job.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, collect, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { MAX_INBOX_MESSAGES } from './inbox.ts';
import { Questions } from './questions.ts';
import { DEFAULT_RETENTION } from './replies.ts';

const MINUTE = 60_000;
/** The state contains text that looks like a field of the job, and so does the input in `ask`. An answer must change neither. */
const QUESTION = {
  text: 'Publish?',
  schema: { type: 'boolean' },
  timeoutMs: 60 * MINUTE,
  state: '{"draft":"é\\"deadlineMs\\":1"}',
};

describe('questions to a person', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now = Date.now();
  const open = () => openTestScheduler(redis, { clock: () => now, prefix: 'questions' });
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = open();
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  const ask = async (options: Parameters<typeof submission>[0] = {}, question = QUESTION) => {
    const record = submission({ submittedAt: now, input: '{"deadlineMs":7}', ...options });
    await scheduler.invocations.create(record);
    const attempt = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in attempt);
    assert.equal(
      await scheduler.questions.ask(record, attempt.epoch, attempt.nextSeq, question, { outputTokens: 5 }),
      'waiting',
    );
    return { ...record, epoch: attempt.epoch };
  };
  const counts = async () => {
    const { redis: client, keys } = scheduler.store;
    const [questions, ofTenant, ledger, activeJobs, heldJobs] = await Promise.all([
      client.zcard(keys.questions),
      client.scard(keys.tenantQuestions('default')),
      client.hlen(`${keys.admission}:ledger`),
      client.llen(`${keys.jobs}:active`),
      client.scard(keys.held('r1')),
    ]);
    return { questions, ofTenant, ledger, held: activeJobs + heldJobs };
  };

  test('an invocation that waits for an answer holds no slot and no job, waits on after a restart, and takes only the first answer', async () => {
    const asked = await ask();
    const { invocations } = scheduler;
    assert.equal(await scheduler.questions.ask(asked, asked.epoch, 1, QUESTION, null), 'waiting', 'a repeated call');
    const waiting = await invocations.get(asked.id);
    assert.deepEqual([waiting?.status, waiting?.question?.text, waiting?.runtimeId], ['waiting', 'Publish?', null]);
    assert.deepEqual(await counts(), { questions: 1, ofTenant: 1, ledger: 0, held: 0 });
    assert.equal(await invocations.append(asked.id, asked.epoch, 2, [{ event: 'message', data: '{}' }]), 'stale');
    await scheduler.close();
    await redis.restart();
    scheduler = open();
    await scheduler.admission.repair();
    now += 30 * MINUTE;
    assert.equal(await scheduler.questions.expire(asked.id), 'not-waiting', 'the time has not passed');
    assert.equal(await scheduler.questions.answer(asked.id, 'true', 99), 'not-waiting', 'another question');
    const answers = await Promise.all(['true', 'false'].map((value) => scheduler.questions.answer(asked.id, value)));
    assert.deepEqual(answers, ['ok', 'not-waiting']);
    const record = await scheduler.invocations.get(asked.id);
    // The deadline of one minute, and 30 minutes of waiting.
    assert.deepEqual([record?.status, record?.question, record?.deadlineMs], ['queued', null, 31 * MINUTE]);
    const { jobs } = scheduler.store.keys;
    const [data, resumption] = await scheduler.store.redis.hmget(`${jobs}:${asked.id}`, 'data', 'resumption');
    const job = JSON.parse(data ?? '');
    assert.deepEqual([job.deadlineMs, job.input, job.arrival], [31 * MINUTE, '{"deadlineMs":7}', record?.arrival]);
    const answered: Resumption = { state: QUESTION.state, answer: { tag: 'answered', val: 'true' } };
    assert.deepEqual(JSON.parse(resumption ?? ''), answered);
    assert.deepEqual(await counts(), { questions: 0, ofTenant: 0, ledger: 0, held: 0 });

    const nextAttempt = await beginAttempt(scheduler, asked.id, 'r2');
    assert.ok('epoch' in nextAttempt);
    assert.deepEqual([nextAttempt.queuedAt, nextAttempt.usageBefore?.outputTokens], [now, 5]);
    const ended = { event: 'result', data: '1' } as const;
    assert.equal(
      await scheduler.invocations.finish(asked.id, nextAttempt.epoch, nextAttempt.nextSeq, ended, null),
      'ok',
    );
    const events = await collect(scheduler.events.follow(asked.id, 0));
    assert.deepEqual(
      events.map(({ event }) => event),
      ['question', 'result'],
    );
    await assertBytes();
  });

  test('when the time for an answer has passed, the invocation goes on without one, and an answer is refused', async () => {
    const { id } = await ask();
    now += 60 * MINUTE;
    assert.equal(await scheduler.questions.answer(id, 'true'), 'not-waiting');
    assert.equal(await scheduler.questions.expire(id), 'ok');
    const resumption = await scheduler.store.redis.hget(`${scheduler.store.keys.jobs}:${id}`, 'resumption');
    assert.deepEqual(JSON.parse(resumption ?? '').answer, { tag: 'expired' });
    await scheduler.control.requestCancel(id, 'enough');
    assert.equal(await scheduler.questions.expire('inv-nothing'), 'unknown');
    await assertBytes();
  });

  test('a cancel ends the wait at once, and an attempt cannot ask while a cancel is under way', async () => {
    const { id } = await ask();
    assert.equal(await scheduler.control.requestCancel(id, 'enough'), 'cancelled');
    assert.equal(await scheduler.questions.answer(id, 'true'), 'not-waiting');
    const events = await collect(scheduler.events.follow(id, 0));
    assert.deepEqual(
      events.map(({ event }) => event),
      ['question', 'error'],
    );
    assert.deepEqual(await counts(), { questions: 0, ofTenant: 0, ledger: 0, held: 0 });
    assert.equal(await scheduler.store.redis.exists(`${scheduler.store.keys.jobs}:${id}`), 0);
    const record = submission({ submittedAt: now });
    await scheduler.invocations.create(record);
    const attempt = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in attempt);
    await scheduler.control.requestCancel(record.id, 'enough');
    assert.equal(await scheduler.questions.ask(record, attempt.epoch, 1, QUESTION, null), 'cancelled');
    await scheduler.invocations.fail(record.id, 'internal', 'enough');
    await assertBytes();
  });

  test('a question drops the messages that the attempt has handled, even those of a full inbox', async () => {
    const { inbox, questions, store } = scheduler;
    for (const remaining of [1, 0]) {
      const record = submission({ submittedAt: now });
      await scheduler.invocations.create(record);
      const attempt = await beginAttempt(scheduler, record.id, 'r1');
      assert.ok('epoch' in attempt);
      for (let i = 0; i < MAX_INBOX_MESSAGES; i += 1) await inbox.push(record.id, { text: `${i}` });
      assert.equal(await inbox.push(record.id, { text: 'one more' }), 'full');
      const key = store.keys.inbox(record.id);
      // Each message begins with its token of 16 bytes.
      const handled = (await store.redis.lindexBuffer(key, -1 - remaining))?.subarray(0, 16);
      const question = { ...QUESTION, handled };
      assert.equal(await questions.ask(record, attempt.epoch, attempt.nextSeq, question, null), 'waiting');
      assert.equal(await store.redis.llen(key), remaining);
      await scheduler.control.requestCancel(record.id, 'enough');
    }
    await assertBytes();
  });

  test('an answer and a cancel that the connection sends twice get their first reply', async (t) => {
    const [answered, cancelled] = [await ask(), await ask()];
    const { questions, control, store } = scheduler;
    const script = store.script.bind(store);
    t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
      await script(...call);
      return script(...call);
    });
    assert.equal(await questions.answer(answered.id, 'true'), 'ok');
    assert.equal(await control.requestCancel(cancelled.id, 'enough'), 'cancelled');
    assert.equal(await control.requestCancel(answered.id, 'enough'), 'cancelled');
    await assertBytes();
  });

  test('invocations that ask count against the quotas of waiting invocations and of bytes', async () => {
    const tenant = 'bounded';
    const set = (quota: 'waiting-invocations' | 'redis-bytes', limit: number) =>
      scheduler.quotas.set(tenant, { quota, function: null, limit, until: null }, { author: 'key', reason: '' });
    const { id } = await ask({ tenant });
    await set('waiting-invocations', 1);
    await assert.rejects(scheduler.invocations.create(submission({ tenant })), { code: 'quota-exceeded' });
    await set('waiting-invocations', 9);
    const record = submission({ tenant, submittedAt: now });
    await scheduler.invocations.create(record);
    const attempt = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in attempt);
    await set('redis-bytes', 10_000);
    const large = { ...QUESTION, state: 'x'.repeat(10_000) };
    await assert.rejects(scheduler.questions.ask(record, attempt.epoch, 1, large, null), { code: 'quota-exceeded' });
    await assert.rejects(scheduler.questions.answer(id, JSON.stringify('x'.repeat(10_000))), {
      code: 'quota-exceeded',
    });
    assert.equal((await scheduler.invocations.get(id))?.status, 'waiting', 'a refused answer changes nothing');
  });

  test('the log bounds the events of all questions together, the account counts them, and the idempotency key outlives the wait', async () => {
    const tenant = 'curious';
    const { redis: client, keys, clock } = scheduler.store;
    // Room for the events of two questions.
    const retention = { ...DEFAULT_RETENTION, maxBytes: 200 };
    const record = submission({ tenant, submittedAt: now, idempotencyKey: 'once', fingerprint: 'f' });
    await scheduler.invocations.create(record);
    const bounded = new Questions(scheduler.store, retention);
    const outcomes: string[] = [];
    for (let round = 0; round < 3; round++) {
      const attempt = await beginAttempt(scheduler, record.id, 'r1');
      assert.ok('epoch' in attempt);
      outcomes.push(await bounded.ask(record, attempt.epoch, attempt.nextSeq, QUESTION, null));
      const until = now + QUESTION.timeoutMs;
      if (outcomes.at(-1) === 'waiting') {
        const keyEnd = clock() + (await client.pttl(keys.idempotency(tenant, 'once')));
        assert.ok(keyEnd > until + DEFAULT_RETENTION.idempotencyMs);
      }
      now = until;
      await bounded.expire(record.id);
    }
    assert.deepEqual(outcomes, ['waiting', 'waiting', 'full']);
    await scheduler.invocations.fail(record.id, 'output-limit', 'full');
    const events = await collect(scheduler.events.follow(record.id, 0));
    const { bytes } = await client.hgetall(`${keys.account(tenant)}:redis`);
    // A record counts 2,048 bytes.
    assert.ok(Number(bytes) > events.reduce((sum, { data }) => sum + data.length, 2048), `${bytes}`);
  });

  /** Asserts that the account of the tenant `default` holds no bytes of unended invocations and that its sum is right. */
  async function assertBytes(): Promise<void> {
    const { redis: client, keys } = scheduler.store;
    const account = await client.hgetall(`${keys.account('default')}:redis`);
    assert.deepEqual(
      Object.keys(account).filter((name) => name.startsWith('i:')),
      [],
    );
    const { bytes, ...others } = account;
    assert.equal(
      Number(bytes),
      Object.values(others).reduce((total, value) => total + Number(value), 0),
    );
  }
});
