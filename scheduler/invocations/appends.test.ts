import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import type { Metered } from '../quotas/exceeded.ts';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { AppendOutcome, NewEvent, TerminalEvent } from './types.ts';

const RESULT: TerminalEvent = { event: 'result', data: '{"output":1}' };
const message = (text: string): NewEvent => ({ event: 'message', data: JSON.stringify({ text }) });

interface Running {
  readonly id: string;
  readonly epoch: number;
}

describe('appends of several attempts in one turn', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());
  beforeEach(() => {
    // A busy machine takes seconds to begin 150 attempts at once.
    scheduler = openTestScheduler(redis, { deadlineMs: 60_000 });
  });
  afterEach(() => scheduler.close());

  async function beginOne(tenant: string, name = 'story'): Promise<Running> {
    const record = submission({ tenant, function: name });
    await scheduler.invocations.create(record);
    const attempt = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in attempt);
    return { id: record.id, epoch: attempt.epoch };
  }

  const beginMany = (tenant: string, count: number, name?: string) =>
    Promise.all(Array.from({ length: count }, () => beginOne(tenant, name)));

  const texts = async ({ id }: Running) =>
    (await scheduler.events.read(id, 0)).map(({ seq, data }) => [seq, JSON.parse(data).text]);

  const scriptCalls = async () => {
    const stats = await scheduler.store.call((connection) => connection.info('commandstats'));
    const count = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
    return count('eval') + count('evalsha');
  };

  test('appends of one turn share one script call, and followers get their events', async () => {
    const attempts = await beginMany('acme', 20);
    const first = attempts[0];
    assert.ok(first);
    const followed: string[] = [];
    const following = (async () => {
      for await (const { data } of scheduler.events.follow(first.id, 0)) followed.push(data);
    })();
    const before = await scriptCalls();
    const outcomes = await Promise.all(
      attempts.map(({ id, epoch }, i) => scheduler.invocations.append(id, epoch, 1, [message(`a${i}`), message('b')])),
    );
    assert.deepEqual([...new Set(outcomes)], ['ok']);
    // One call appends; the others are reads of the follower.
    assert.ok((await scriptCalls()) - before <= 3);
    for (const [i, attempt] of attempts.entries()) {
      assert.deepEqual(await texts(attempt), [
        [1, `a${i}`],
        [2, 'b'],
      ]);
    }
    await scheduler.invocations.finish(first.id, first.epoch, 3, RESULT, null);
    await following;
    assert.deepEqual(followed, [message('a0').data, message('b').data, RESULT.data]);
  });

  test('repeated appends count the usage of each attempt once, for its tenant and its function', async () => {
    const attempts = [
      ...(await beginMany('acme', 3)),
      ...(await beginMany('acme', 2, 'other')),
      ...(await beginMany('globex', 2)),
    ];
    const report = ({ id, epoch }: Running, outputTokens: number) =>
      scheduler.invocations.append(id, epoch, 1, [message('a')], { outputTokens });
    // Attempt i reports 10^i tokens, so the digits of a sum show its attempts. Each call is made twice, as after a lost
    // answer.
    for (const _ of [1, 2]) await Promise.all(attempts.map((attempt, i) => report(attempt, 10 ** i)));
    const counted = async (tenant: string, name?: string) => {
      const now = Date.now();
      const month = await scheduler.usage.spans(tenant, 'month', now, now, name === undefined ? 'tenant' : 'functions');
      return month.find((each) => each.function === (name ?? null))?.counts.outputTokens;
    };
    assert.equal(await counted('acme'), 11_111);
    assert.equal(await counted('acme', 'story'), 111);
    assert.equal(await counted('acme', 'other'), 11_000);
    assert.equal(await counted('globex'), 1_100_000);
  });

  test('the answer to each append names the quota that this attempt exceeds', async () => {
    const limit = { quota: 'tokens-per-minute', function: 'story', limit: 10, until: null } as const;
    await scheduler.quotas.set('acme', limit, { author: 'key_1', reason: '' });
    const attempts = [...(await beginMany('acme', 2)), await beginOne('acme', 'other'), await beginOne('globex')];
    const answers = await Promise.all(
      attempts.map(
        ({ id, epoch }): Promise<Metered<AppendOutcome>> =>
          scheduler.invocations.append(id, epoch, 1, [message('a')], { outputTokens: 6 }),
      ),
    );
    assert.deepEqual(
      answers.map(({ outcome, exceeded, tokens }) => [outcome, exceeded?.quota, tokens?.ceiling]),
      [
        ['ok', 'tokens-per-minute', 6],
        ['ok', 'tokens-per-minute', 6],
        ['ok', undefined, null],
        ['ok', undefined, null],
      ],
    );
  });

  test('an append succeeds although other appends of the same turn are refused or fail', async () => {
    const { invocations, store } = scheduler;
    const [fine, stale, ended, gap, broken] = (await beginMany('acme', 5)) as [
      Running,
      Running,
      Running,
      Running,
      Running,
    ];
    const poor = await beginOne('globex');
    const limit = { quota: 'redis-bytes', function: null, limit: 10_000, until: null } as const;
    await scheduler.quotas.set('globex', limit, { author: 'key_1', reason: '' });
    await invocations.finish(ended.id, ended.epoch, 1, RESULT, null);
    await store.call((connection) => connection.set(store.keys.events(broken.id), 'no stream'));
    const append = ({ id, epoch }: Running, events: NewEvent[], seq = 1) => invocations.append(id, epoch, seq, events);
    const small = [message('a')];
    const outcomes = await Promise.allSettled([
      append({ ...stale, epoch: stale.epoch + 1 }, small),
      append(broken, small),
      append(ended, small, 2),
      append(gap, small, 3),
      append(poor, [message('x'.repeat(20_000))]),
      append(poor, [{ event: 'message', data: '\0' }]),
      append(fine, small),
      append(poor, small),
    ]);
    await store.call((connection) => connection.del(store.keys.events(broken.id)));
    const results = outcomes.map((each) => (each.status === 'fulfilled' ? each.value : each.reason));
    const [ofStale, ofBroken, ofEnded, ofGap, ofLarge, ofMalformed, ...ofOthers] = results;
    assert.equal(ofStale, 'stale');
    assert.ok(
      ofBroken instanceof StoreError && ofBroken.code === 'store-corrupt' && /WRONGTYPE/.test(ofBroken.message),
    );
    assert.equal(ofEnded, 'ended');
    assert.equal(ofGap.lastSeq, 0);
    assert.ok(ofLarge instanceof QuotaExceeded);
    assert.equal(ofMalformed.code, 'invalid-argument');
    assert.deepEqual(ofOthers, ['ok', 'ok']);
    assert.deepEqual(await texts(fine), [[1, 'a']]);
    assert.deepEqual(await texts(poor), [[1, 'a']]);
  });

  test('appends of one turn beyond a bounded size are split into several script calls', async () => {
    const attempts = await beginMany('acme', 150);
    const before = await scriptCalls();
    const large = message('x'.repeat(100_000));
    const outcomes = await Promise.all(
      attempts.map(({ id, epoch }, i) => scheduler.invocations.append(id, epoch, 1, i < 4 ? [large] : [message('a')])),
    );
    assert.deepEqual([...new Set(outcomes)], ['ok']);
    // Each large event needs a call of its own, which has room for 30 small appends besides. The 146 small ones need at least one call more.
    const callsMade = (await scriptCalls()) - before;
    assert.ok(callsMade >= 5 && callsMade <= 8, `${callsMade} calls`);
  });
});
