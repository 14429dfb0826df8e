import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import type { Submission } from '../invocations/submission.ts';
import type { Scheduler } from '../scheduler.ts';
import { offer, openTestScheduler, submission, TEST_LIMITS } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

/** Opens a scheduler with a runtime that offers `room`. Both close when the test ends, passed or failed. */
async function openWithOffer(context: TestContext, room: Parameters<typeof offer>[1]): Promise<Scheduler> {
  const scheduler = openTestScheduler(redis);
  const lease = await offer(scheduler, room);
  context.after(async () => {
    await lease.release();
    await scheduler.close();
  });
  return scheduler;
}

const limits = (memoryMb: number) => ({ ...TEST_LIMITS, memoryMb });

async function submit(scheduler: Scheduler, count: number, options: Partial<Submission>): Promise<string[]> {
  const submitted: string[] = [];
  for (let i = 0; i < count; i++) submitted.push((await scheduler.submit(submission(options))).id);
  return submitted;
}

/** Memory expected of all admitted invocations, MiB. */
const used = async ({ admission }: Scheduler) => (await admission.capacity()).memory?.usedMb;

/** Ends the invocations one by one. Returns the peak number of admitted ones, and the peak of their expected memory. */
async function endAll(scheduler: Scheduler, ids: readonly string[]) {
  let most = 0;
  let mostMb = 0;
  for (const id of ids) {
    const { usedSlots, memory } = await scheduler.admission.capacity();
    most = Math.max(most, usedSlots);
    mostMb = Math.max(mostMb, memory?.usedMb ?? 0);
    await scheduler.invocations.fail(id, 'internal', 'ended');
  }
  return { most, mostMb };
}

test('40 invocations of 1 GiB each on 4 GiB run at most four at a time, and all run', async (context) => {
  const scheduler = await openWithOffer(context, { slots: 1000, memoryMb: 4096 });
  const ids = await submit(scheduler, 40, { limits: limits(1024), expectedMemoryMb: 1024 });
  assert.deepEqual(await endAll(scheduler, ids), { most: 4, mostMb: 4096 });
  assert.equal(await used(scheduler), 0);
});

test('expected memory is learned, else declared, else 8 MiB or the instance limit if that is less', async (context) => {
  const scheduler = await openWithOffer(context, { slots: 1000, memoryMb: 4096 });
  const expected = async (options: Partial<Submission>) => {
    const [id = ''] = await submit(scheduler, 1, options);
    const memoryMb = await used(scheduler);
    await scheduler.invocations.fail(id, 'internal', 'ended');
    return memoryMb;
  };
  assert.equal(await expected({}), 8);
  assert.equal(await expected({ limits: limits(5) }), 5);
  assert.equal(await expected({ limits: limits(512), expectedMemoryMb: 512 }), 512);
  const run = { tenant: 'default', function: 'story', version: 'learned' };
  for (const memoryMb of [3, 40, 7]) await scheduler.admission.observe(run, { pages: {}, memoryMb });
  assert.equal(await expected({ version: 'learned', limits: limits(512), expectedMemoryMb: 512 }), 40);
  // A peak includes the instances of all children, so it may exceed the limit of one instance.
  assert.equal(await expected({ version: 'learned', limits: limits(30) }), 40);
});

test('a quota of KV pages does not count expected memory, and memory does not count pages', async (context) => {
  const scheduler = await openWithOffer(context, { slots: 1000, pages: { m: 100 }, memoryMb: 4096 });
  const change = { quota: 'kv-pages', function: null, limit: 8, until: null } as const;
  await scheduler.quotas.set('default', change, { author: 'test', reason: '' });
  await submit(scheduler, 2, { limits: limits(64), expectedMemoryMb: 64, models: ['m'], expectedPages: 4 });
  const { usedSlots, models, memory } = await scheduler.admission.capacity();
  assert.deepEqual(
    [usedSlots, models, memory],
    [2, [{ model: 'm', pages: 100, usedPages: 8 }], { totalMb: 4096, usedMb: 128 }],
  );
});

test('admission refuses an instance limit above all memory and stores nothing; it starts an invocation whose limit equals all memory', async (context) => {
  const scheduler = await openWithOffer(context, { slots: 1000, memoryMb: 256 });
  const id = 'too-large';
  await assert.rejects(scheduler.submit(submission({ id, limits: limits(257) })), {
    code: 'above-memory',
    message: 'An instance of story may take 257 MiB (limits.memoryMb), and all runtimes together have 256 MiB.',
  });
  assert.equal(await scheduler.invocations.get(id), null);
  await submit(scheduler, 1, { limits: limits(256), expectedMemoryMb: 256 });
  assert.equal(await used(scheduler), 256);
});
