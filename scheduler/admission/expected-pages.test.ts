import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import type { Submission } from '../invocations/submission.ts';
import { offer, openTestScheduler, submission, TEST_LIMITS } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { DEFAULT_RESERVE } from './job.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

/** Pages by model that admission expects of one more invocation. */
async function expected(scheduler: ReturnType<typeof openTestScheduler>, options: Partial<Submission>) {
  const { id } = await scheduler.submit(submission(options));
  const { models } = await scheduler.admission.capacity();
  await scheduler.invocations.fail(id, 'internal', 'seen');
  return Object.fromEntries(models.flatMap(({ model, usedPages }) => (usedPages > 0 ? [[model, usedPages]] : [])));
}

test('expected pages are declared, else learned, else four of the first model', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await offer(scheduler, { slots: 4, pages: { b: 100, a: 100 } });
  const expectedOf = (options: Partial<Submission>) => expected(scheduler, options);
  assert.deepEqual(await expectedOf({}), { a: 4 }, 'the first model of the platform');
  assert.deepEqual(await expectedOf({ models: ['b', 'a'] }), { b: 4 });
  assert.deepEqual(await expectedOf({ models: ['b'], expectedPages: 7 }), { b: 7 });
  assert.deepEqual(await expectedOf({ expectedPages: 6.2 }), { a: 7 });
  assert.deepEqual(await expectedOf({ models: ['b'], expectedPages: { a: 1, b: 2, gone: 3 } }), { a: 1, b: 2 });
  assert.deepEqual(await expectedOf({ expectedPages: 0 }), {});
  const run = (version: string) => ({ tenant: 'default', function: 'story', version });
  await scheduler.admission.observe(run('needs-none'), { pages: {}, memoryMb: 3 });
  assert.deepEqual(
    await expectedOf({ version: 'needs-none', models: ['b'] }),
    {},
    'admission also learns from a run without pages',
  );
  await scheduler.admission.observe(run('two'), { pages: { a: 9 }, memoryMb: 3 });
  await scheduler.admission.observe(run('two'), { pages: { b: 3 }, memoryMb: 3 });
  assert.deepEqual(await expectedOf({ version: 'two' }), { a: 9, b: 3 }, 'with few samples, the largest peak counts');
  assert.deepEqual(
    await expectedOf({ version: 'two', models: ['b'], expectedPages: 1 }),
    { b: 1 },
    'declared pages win over learned ones',
  );
  await lease.release();
  await scheduler.close();
});

test('an invocation that expects a million pages leaves room for another tenant, whatever bounds its own pages', async (context) => {
  const scheduler = openTestScheduler(redis);
  const lease = await offer(scheduler, { slots: 16, pages: { m: 100 }, reserve: DEFAULT_RESERVE });
  context.after(async () => {
    await lease.release();
    await scheduler.close();
  });
  const quota = { quota: 'kv-pages', function: null, limit: 10, until: null } as const;
  await scheduler.quotas.set('limited', quota, { author: 'test', reason: '' });
  for (const { tenant, pages, counted } of [
    { tenant: 'large', pages: 1, counted: 1 },
    { tenant: 'limited', pages: 1_000_000, counted: 10 },
    // All pages outside the reserve, which is 6 (a sixteenth of 100, rounded down).
    { tenant: 'large', pages: 1_000_000, counted: 94 },
  ]) {
    const limits = { ...TEST_LIMITS, pages };
    const { id } = await scheduler.submit(submission({ tenant, limits, expectedPages: 1_000_000 }));
    const small = await scheduler.submit(submission({ tenant: 'small', expectedPages: 3 }));
    const { usedSlots, models } = await scheduler.admission.capacity();
    assert.deepEqual([usedSlots, models[0]?.usedPages], [2, counted + 3]);
    for (const one of [id, small.id]) await scheduler.invocations.fail(one, 'internal', 'over');
  }
});

test('a waiting head expects what it declares once a temporary quota has ended', async (context) => {
  let now = Date.now();
  const scheduler = openTestScheduler(redis, { clock: () => now });
  const { admission, invocations, quotas } = scheduler;
  const lease = await offer(scheduler, { slots: 1, pages: { m: 100 } });
  context.after(async () => {
    await lease.release();
    await scheduler.close();
  });
  const first = await scheduler.submit(submission());
  const quota = { quota: 'kv-pages', function: null, limit: 10, until: now + 3_600_000 } as const;
  await quotas.set('default', quota, { author: 'test', reason: '' });
  await scheduler.submit(submission({ expectedPages: 80 }));
  now = quota.until;
  await admission.repair(0);
  await invocations.fail(first.id, 'internal', 'over');
  assert.deepEqual((await admission.capacity()).models, [{ model: 'm', pages: 100, usedPages: 80 }]);
});

test('learned pages are the 95th percentile of the last 64 peaks', async () => {
  const scheduler = openTestScheduler(redis);
  const lease = await offer(scheduler, { slots: 4, pages: { m: 10_000 } });
  let versions = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 999 }), { minLength: 1, maxLength: 90, size: 'max' }),
      async (peaks) => {
        versions += 1;
        const run = { tenant: 'default', function: 'story', version: `v${versions}` };
        await Promise.all(peaks.map((m) => scheduler.admission.observe(run, { pages: { m }, memoryMb: 1 })));
        const sortedLast64 = peaks.slice(-64).toSorted((a, b) => a - b);
        const percentile = sortedLast64.findLast((_, i) => i < Math.ceil(0.95 * sortedLast64.length));
        assert.deepEqual(await expected(scheduler, run), { m: percentile });
      },
    ),
    { seed: 20261123, numRuns: 30 },
  );
  await lease.release();
  await scheduler.close();
});
