import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import type { TerminalEvent } from '../invocations/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { QuotaExceeded } from './exceeded.ts';
import { type LimitChange, MAX_SETTINGS } from './limits.ts';
import type { QuotaName } from './names.ts';

const RESULT: TerminalEvent = { event: 'result', data: '{}' };
const MESSAGE = [{ event: 'message' as const, data: '{"text":"a"}' }];
const NOTE = { author: 'key_1', reason: 'for the test' };
/** 2027-01-31T23:59:30.500Z: the minute, the day and the month all end after {@link REST_MS}. */
const START = Date.UTC(2027, 0, 31, 23, 59, 30, 500);
const REST_MS = 29_500;

describe('quotas', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now: number;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());
  beforeEach(async () => {
    now = START;
    scheduler = openTestScheduler(redis, { clock: () => now });
    return () => scheduler.close();
  });

  const set = (quota: QuotaName, limit: number | null, more: Partial<LimitChange> = {}) =>
    scheduler.quotas.set('acme', { quota, limit, function: null, until: null, ...more }, NOTE);
  const create = (options: Parameters<typeof submission>[0] = {}) => {
    const record = submission({ tenant: 'acme', submittedAt: now, ...options });
    return scheduler.invocations.create(record).then((outcome) => ({ ...outcome, id: record.id }));
  };
  const begin = async (id: string) => {
    const attempt = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in attempt);
    return attempt;
  };
  const refusal = async (work: Promise<unknown>): Promise<QuotaExceeded> => {
    const error = await work.then(
      () => assert.fail('the request was accepted'),
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof QuotaExceeded, String(error));
    return error;
  };
  const used = async (quota: QuotaName, fn: string | null = null) =>
    (await scheduler.quotas.status('acme', fn)).find((state) => state.quota === quota && state.function === fn)?.used;

  test('a request beyond the limit is refused until the window ends, and only its rejection is counted', async () => {
    await set('requests-per-minute', 2);
    const key = { idempotencyKey: 'once', fingerprint: 'f' };
    const first = await create(key);
    assert.deepEqual(first.quotas, [
      { quota: 'requests-per-minute', function: null, limit: 2, used: 1, resetsAt: START + REST_MS },
    ]);
    assert.deepEqual((await create(key)).created, false, 'a repeated request does not count');
    await create();
    const refused = submission({ tenant: 'acme', submittedAt: now });
    const error = await refusal(scheduler.invocations.create(refused));
    assert.deepEqual([error.quota, error.use.used, error.retryAfterMs], ['requests-per-minute', 2, REST_MS]);
    assert.equal(await scheduler.invocations.get(refused.id), null);
    const [minute] = await scheduler.usage.minutes('acme', 1);
    assert.deepEqual([minute?.counts.requests, minute?.rejections], [2, { 'quota-requests': 1 }]);
    now += (error.retryAfterMs ?? 0) - 1;
    await refusal(scheduler.invocations.create(refused));
    now += 1;
    assert.ok((await scheduler.invocations.create(refused)).created, 'the request is accepted after that wait');
    assert.equal(await used('requests-per-minute'), 1);
    assert.ok((await scheduler.invocations.create(submission())).created, 'another tenant has its own quota');
  });

  test('of several exhausted quotas, the last window to end sets `retryAfterMs`; a limit of 0 refuses all requests', async () => {
    await set('requests-per-minute', 1);
    await set('requests-per-day', 1);
    await set('tokens-per-month', 5, { function: 'story' });
    await create();
    // The clock goes back to noon of 10 January, so that day and month end at different times. The request above counts in the minute and the day of
    // 31 January. The next request is therefore accepted.
    now = Date.UTC(2027, 0, 10, 12);
    const { id } = await create();
    const { epoch, tokenCeiling } = await begin(id);
    assert.equal(tokenCeiling, 2, 'half of the 5 tokens');
    const outcome = await scheduler.invocations.append(id, epoch, 1, MESSAGE, { inputTokens: 4, outputTokens: 1 });
    assert.deepEqual(
      // `kvPages` is not compared, because it has the time at which Redis read the page limit.
      { ...outcome, kvPages: null },
      { outcome: 'ok', exceeded: null, tokens: { ceiling: 5, short: null }, kvPages: null },
      'usage equal to the limit does not exceed it',
    );
    const error = await refusal(create());
    assert.deepEqual([error.quota, error.use.function], ['tokens-per-month', 'story']);
    assert.equal(now + (error.retryAfterMs ?? 0), Date.UTC(2027, 1, 1));
    assert.equal((await refusal(create({ function: 'other' }))).quota, 'requests-per-day');
    await set('requests-per-minute', 0);
    assert.equal((await refusal(create({ function: 'other' }))).retryAfterMs, null);
  });

  test('append and report return the quota that a running invocation has exceeded', async () => {
    await set('gpu-ms-per-minute', 100);
    await set('cpu-ms-per-day', 50, { function: 'story' });
    const { id } = await create();
    const { epoch } = await begin(id);
    const append = (usage: Record<string, number>) => scheduler.invocations.append(id, epoch, 1, MESSAGE, usage);
    const report = (usage: Record<string, number>) => scheduler.invocations.report(id, epoch, usage);
    assert.equal((await append({ gpuMs: 99.5, cpuMs: 50 })).exceeded, null);
    assert.deepEqual((await report({ gpuMs: 100.25, cpuMs: 50 })).exceeded, {
      quota: 'gpu-ms-per-minute',
      limit: 100,
      resetsAt: START + REST_MS,
      scope: 'tenant',
    });
    // Both quotas are exceeded now; the one with the longer window is reported.
    const { exceeded } = await report({ gpuMs: 100.25, cpuMs: 50.001 });
    assert.deepEqual([exceeded?.quota, exceeded?.scope], ['cpu-ms-per-day', 'function']);
    assert.equal(await used('gpu-ms-per-minute'), 100.25);
    assert.equal((await refusal(create())).quota, 'cpu-ms-per-day');
    assert.equal((await scheduler.invocations.report(id, epoch + 1, { gpuMs: 1 })).outcome, 'stale');
    await scheduler.invocations.finish(id, epoch, 2, RESULT, { gpuMs: 101, cpuMs: 60, inputTokens: 7 });
    assert.equal((await scheduler.invocations.report(id, epoch, { gpuMs: 999 })).outcome, 'ended');
    assert.deepEqual([await used('gpu-ms-per-minute'), await used('cpu-ms-per-day', 'story')], [101, 60]);
  });

  test('invocations beyond the concurrent quota wait, and those beyond the waiting quota are refused', async () => {
    await scheduler.quotas.setDefaults({ 'waiting-invocations': 2 });
    const [first] = await Promise.all([create(), create()]);
    const error = await refusal(create());
    assert.deepEqual([error.quota, error.use.used, error.retryAfterMs], ['waiting-invocations', 2, 1000]);
    await set('concurrent-invocations', 1);
    await create();
    assert.deepEqual((await refusal(create())).use.used, 2);
    assert.deepEqual([await used('waiting-invocations'), await used('concurrent-invocations')], [2, 0]);
    await scheduler.invocations.fail(first.id, 'internal', 'gone');
    // A repeated call must not make room a second time: one more invocation is accepted, and no second one.
    await scheduler.invocations.fail(first.id, 'internal', 'gone');
    const { id } = await create();
    await refusal(create());
    await scheduler.cancel(id, 'changed my mind');
    assert.ok((await create()).created, 'the cancelled invocation made room for one');
    await set('concurrent-invocations', 3);
    await set('concurrent-invocations', 3, { function: 'story' });
    // Three invocations of `story`, the default function of `submission`, are open.
    const ofFunction = await refusal(create());
    assert.deepEqual(
      [ofFunction.quota, ofFunction.use.function, ofFunction.use.used],
      ['concurrent-invocations', 'story', 3],
    );
    assert.ok((await create({ function: 'other' })).created);
    await set('concurrent-invocations', 0);
    await set('waiting-invocations', 1000);
    const ofTenant = await refusal(create({ function: 'other' }));
    assert.deepEqual([ofTenant.quota, ofTenant.use.function, ofTenant.use.limit], ['concurrent-invocations', null, 0]);
  });

  test('debounced invocations, and invocations that wait for an answer, count as waiting', async () => {
    const { id } = await create();
    const { epoch } = await begin(id);
    const question = { text: 'Publish?', schema: { type: 'boolean' }, timeoutMs: 60_000, state: '{}' };
    const record = submission({ id, tenant: 'acme' });
    assert.equal(await scheduler.questions.ask(record, epoch, 1, question, null), 'waiting');
    await create({ debounce: { key: 'doc-1', delayMs: 1000, maxMs: 1000 } });
    await begin((await create()).id);
    await create();
    // The status shows only quotas that have a limit. The invocations of this test do not reach these limits.
    await set('waiting-invocations', 1000);
    await set('concurrent-invocations', 1000);
    assert.equal(await used('concurrent-invocations'), 1);
    await set('concurrent-invocations', null);
    await set('waiting-invocations', 3);
    assert.equal((await refusal(create())).use.used, 3);
    assert.equal(await used('waiting-invocations'), 3);
  });

  test('the quota limits the invocations that get latency targets, and the end of one makes room again', async () => {
    const { keys, redis: commands } = scheduler.store;
    const latency = { firstTokenMs: 200, perTokenMs: 40 };
    /** The targets and the arrival number in an invocation's job. */
    const granted = async (id: string) => {
      const job = JSON.parse((await commands.hget(`${keys.jobs}:${id}`, 'data')) ?? '{}');
      const record = await commands.hget(keys.invocation(id), 'latency');
      assert.equal(record !== null, job.latency !== undefined);
      assert.equal(job.arrival, (await scheduler.invocations.get(id))?.arrival);
      return [job.latency ?? null, job.arrival];
    };
    await commands.set(keys.arrivals, 20_000);
    assert.deepEqual(await granted((await create({ latency })).id), [null, 20_001], 'no targets without a limit');
    await set('latency-invocations', 2);
    const first = await create({ latency });
    assert.deepEqual(await granted(first.id), [latency, 10_002], '10,000 places before its arrival');
    assert.deepEqual(await granted((await create()).id), [null, 20_003], 'a function without targets');
    const second = await create({ latency });
    assert.deepEqual(await granted(second.id), [latency, 10_004]);
    assert.deepEqual(await granted((await create({ latency })).id), [null, 20_005], 'beyond the quota');
    assert.equal(await used('latency-invocations'), 2);
    const { epoch } = await begin(first.id);
    await scheduler.invocations.finish(first.id, epoch, 1, RESULT, {});
    await scheduler.cancel(second.id, 'changed my mind');
    assert.equal(await used('latency-invocations'), 0);
    await set('concurrent-invocations', 1);
    assert.deepEqual((await granted((await create({ latency })).id))[0], latency);
    assert.deepEqual((await granted((await create({ latency })).id))[0], null, 'more than the tenant may run at once');
    await commands.set(keys.arrivals, 5);
    await set('concurrent-invocations', 5);
    assert.deepEqual(await granted((await create({ latency })).id), [latency, 1], 'the first arrival number is 1');
  });

  test('a repair removes a lost invocation from the set of invocations with latency targets', async () => {
    const { keys, redis: commands } = scheduler.store;
    const grantedKey = `${keys.account('acme')}:latency`;
    await commands.sadd(keys.tenants, 'acme');
    await set('latency-invocations', 2);
    const { id } = await create({ latency: { firstTokenMs: 200, perTokenMs: 40 } });
    await commands.sadd(grantedKey, 'lost');
    assert.equal(await used('latency-invocations'), 2);
    assert.equal(await scheduler.quotas.repairAccounts(0), 1);
    assert.deepEqual(await commands.smembers(grantedKey), [id]);
    assert.equal(await scheduler.quotas.repairAccounts(0), 0, 'nothing is left to repair');
  });

  test('invocations of functions without latency targets get those of the tenant, within the same quota', async () => {
    const { keys, redis: commands } = scheduler.store;
    const [ownTargets, tenantTargets] = [
      { firstTokenMs: 200, perTokenMs: 40 },
      { firstTokenMs: 900, perTokenMs: 90 },
    ];
    const granted = async (options: Parameters<typeof create>[0] = {}) => {
      const { id } = await create(options);
      const job = JSON.parse((await commands.hget(`${keys.jobs}:${id}`, 'data')) ?? '{}');
      const record = await commands.hget(keys.invocation(id), 'latency');
      assert.deepEqual(JSON.parse(record ?? 'null'), job.latency ?? null);
      return job.latency ?? null;
    };
    await scheduler.tenants.create('acme', { latency: tenantTargets });
    assert.equal(await granted(), null, 'no targets without a limit');
    await set('latency-invocations', 4);
    assert.deepEqual(await granted(), tenantTargets);
    assert.deepEqual(await granted({ latency: ownTargets }), ownTargets);
    assert.equal(await granted({ latency: false }), null, 'a function may state that it has none');
    assert.deepEqual(await granted(), tenantTargets);
    await scheduler.tenants.change('acme', { latency: null });
    assert.equal(await granted(), null);
    assert.deepEqual(await granted({ latency: ownTargets }), ownTargets);
    await scheduler.tenants.change('acme', { latency: tenantTargets });
    assert.equal(await granted(), null, 'beyond the quota');
    assert.equal(await used('latency-invocations'), 4);
  });

  test('large limits and counters lose no digits', async () => {
    const large = 999_999_999_999_999;
    await set('tokens-per-day', large - 1);
    await set('kv-pages', large);
    const { id } = await create();
    const attempt = await begin(id);
    assert.equal(attempt.kvPages.pages, large);
    const ask = { keep: 0, need: large - 1, want: large };
    const { tokens } = await scheduler.invocations.report(id, attempt.epoch, { outputTokens: 1 }, ask);
    assert.equal(tokens?.ceiling, large - 1);
    const { exceeded } = await scheduler.invocations.report(id, attempt.epoch, { outputTokens: large });
    assert.equal(exceeded?.limit, large - 1);
  });

  test('an override applies until its end or until a permanent limit replaces it, and null restores the default', async () => {
    await scheduler.quotas.setDefaults({ 'requests-per-minute': 9, 'kv-pages': 8 });
    const shownStates = async () => {
      const states = await scheduler.quotas.status('acme');
      return states.map(({ quota, limit, source, override }) => [quota, limit, source, override?.author]);
    };
    const limitOf = () => scheduler.quotas.limit('acme', 'requests-per-minute');
    assert.deepEqual(await shownStates(), [
      ['requests-per-minute', 9, 'default', undefined],
      ['kv-pages', 8, 'default', undefined],
    ]);
    await set('requests-per-minute', 5);
    await set('requests-per-minute', 50, { until: now + 1000 });
    assert.deepEqual((await shownStates())[0], ['requests-per-minute', 50, 'override', 'key_1']);
    assert.deepEqual([await limitOf(), (await create()).quotas[0]?.limit], [50, 50]);
    now += 1000;
    assert.deepEqual([await limitOf(), (await create()).quotas[0]?.limit], [5, 5]);
    await set('requests-per-minute', 50, { until: now + 1000 });
    await set('requests-per-minute', 6);
    assert.equal(await limitOf(), 6);
    await set('requests-per-minute', null);
    assert.deepEqual([await limitOf(), (await create()).quotas[0]?.limit], [9, 9]);
    await scheduler.quotas.setDefaults({});
    assert.deepEqual([await limitOf(), (await create()).quotas, await shownStates()], [null, [], []]);
    const { id } = await create();
    await set('kv-pages', 3);
    const { epoch, kvPages } = await begin(id);
    await set('kv-pages', 1, { until: now + 1000 });
    const reportedPages = async () => (await scheduler.invocations.report(id, epoch, { gpuMs: 1 })).kvPages;
    const overridden = await reportedPages();
    now += 1000;
    const restored = await reportedPages();
    assert.deepEqual(
      [kvPages.pages, overridden?.pages, restored?.pages],
      [3, 1, 3],
      'an override during an invocation',
    );
    assert.ok(kvPages.readAt <= (overridden?.readAt ?? 0) && (overridden?.readAt ?? 0) <= (restored?.readAt ?? 0));
  });

  test('a tenant may have 1000 settings; the mark `#counted` in the same hash does not count', async () => {
    assert.equal(await set('requests-per-minute', 5), 'ok');
    const { keys, redis: connection } = scheduler.store;
    // All but two: the setting above, and the last one that fits.
    const others = Array.from({ length: MAX_SETTINGS - 2 }, (_, i) => [`requests-per-day:f${i}`, 1]);
    await connection.hset(`${keys.account('acme')}:quotas`, Object.fromEntries(others));
    assert.equal(await set('tokens-per-day', 1), 'ok', 'the last one that the tenant may have');
    assert.equal(await set('tokens-per-month', 1), 'full');
    assert.equal(await set('tokens-per-day', 2), 'ok', 'a change of a setting needs no room');
  });

  test('the storage quota counts stored values, files, components and version records together', async () => {
    const maxBytes = 1000;
    await set('storage-bytes', maxBytes);
    const { keyValues, files, blobs, functions } = scheduler;
    assert.equal((await keyValues.write('acme', 'k', new Uint8Array(100))).kind, 'written');
    const { id } = await create();
    const { epoch } = await begin(id);
    assert.equal(await files.put(id, 'f', 'text/plain', new Uint8Array(200)), 'ok');
    const component = new Uint8Array(400);
    const componentHash = await blobs.put('acme', component);
    const version = {
      tenant: 'acme',
      name: 'story',
      version: 'v1',
      componentHash,
      componentBytes: 400,
      createdAt: now,
      manifest: { name: 'story' },
    };
    await functions.put(version as never);
    // A repeated call counts nothing twice.
    await functions.put(version as never);
    const total = (await used('storage-bytes')) ?? 0;
    const record = Buffer.byteLength(JSON.stringify(version));
    const contents = 100 + 200 + 400;
    // Names and other fields take less than 60 bytes.
    assert.ok(total > contents + record && total < contents + 60 + record, `${total}`);
    const other = { ...version, version: 'v2' };
    assert.deepEqual((await refusal(functions.put(other as never))).use.used, total);
    assert.equal((await refusal(files.put(id, 'g', 'text/plain', new Uint8Array(300)))).quota, 'storage-bytes');
    const { use } = await refusal(keyValues.write('acme', 'l', new Uint8Array(300)));
    assert.deepEqual([use.quota, use.limit, use.used], ['storage-bytes', maxBytes, total]);
    assert.equal(
      (await keyValues.write('acme', 'k', new Uint8Array(10))).kind,
      'written',
      'a smaller value is always accepted',
    );
    await scheduler.invocations.finish(id, epoch, 1, RESULT, null);
    // Longer than files of an ended invocation are kept.
    now += 40 * 86_400_000;
    // A stored value takes 8 bytes besides its key and content.
    const valueBytes = 'k'.length + 10 + 8;
    const remaining = valueBytes + component.length + record;
    assert.equal(await used('storage-bytes'), remaining, 'the file has expired after the end of its invocation');
  });
});
