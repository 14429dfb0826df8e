import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'bullmq';
import fc from 'fast-check';
import { INVOCATION_QUEUE } from '../keys.ts';
import type { Scheduler } from '../scheduler.ts';
import { offer, openTestScheduler, registerRuntime, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

describe('active jobs', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** The BullMQ part of a runtime; it only fetches jobs. */
  function fetcher(scheduler: Scheduler, name: string) {
    const connection = redis.connect();
    const worker = new Worker(INVOCATION_QUEUE, null, {
      connection,
      prefix: scheduler.store.keys.bull,
      name,
      autorun: false,
      skipStalledCheck: true,
      lockDuration: 60_000,
    });
    worker.on('error', () => undefined);
    return {
      fetch: async (): Promise<string | undefined> => (await worker.getNextJob('token', { block: false }))?.data.id,
      close: async () => {
        await worker.close(true);
        connection.disconnect();
      },
    };
  }

  test('a returned job waits at its place by arrival, whatever the order in which jobs return', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 12 }),
        fc.array(fc.tuple(fc.boolean(), fc.nat(20)), { minLength: 1, maxLength: 30, size: 'max' }),
        async (count, steps) => {
          const scheduler = openTestScheduler(redis);
          const runtime = fetcher(scheduler, 'r1');
          // Few slots, so that most invocations wait in the queue instead of being admitted.
          const slots = 2;
          const lease = await offer(scheduler, { slots });
          try {
            const order = Array.from({ length: count }, (_, i) => `job-${i}`);
            for (const id of order) await scheduler.submit(submission({ id }));
            const queue = [...order];
            const admitted: string[] = [];
            const fetchedIds: string[] = [];
            const check = async () => {
              const freeSlots = slots - fetchedIds.length - admitted.length;
              admitted.push(...queue.splice(0, freeSlots));
              assert.deepEqual(await scheduler.queue.waiting(), [...admitted, ...queue]);
            };
            await check();
            for (const [fetch, which] of steps) {
              if (fetch) {
                const id = await runtime.fetch();
                assert.equal(id, admitted.shift());
                if (id !== undefined) fetchedIds.push(id);
              } else if (fetchedIds.length > 0) {
                const [id] = fetchedIds.splice(which % fetchedIds.length, 1);
                const mode = which % 2 === 0 ? 'giveBack' : 'lost';
                assert.equal(await scheduler.active[mode](id!, 'r1'), 'waiting');
                assert.equal(await scheduler.active[mode](id!, 'r1'), 'not-held');
                queue.push(id!);
                queue.sort((a, b) => order.indexOf(a) - order.indexOf(b));
              }
              await check();
            }
          } finally {
            await runtime.close();
            await lease.release();
            await scheduler.close();
          }
        },
      ),
      { seed: 20261105, numRuns: 25 },
    );
  });

  test('each end of an invocation takes its job from the runtime in the same step', async () => {
    const scheduler = openTestScheduler(redis);
    const runtime = fetcher(scheduler, 'r1');
    const lease = await offer(scheduler, { slots: 10 });
    await registerRuntime(scheduler.store, 'r1');
    const { invocations, active, queue } = scheduler;
    const fetched = async (options: { restartable?: boolean; begin?: boolean }) => {
      const { id } = await scheduler.submit(submission({ restartable: options.restartable ?? false }));
      assert.equal(await runtime.fetch(), id);
      const attempt = options.begin ? await invocations.beginAttempt(id, 'r1') : null;
      return { id, epoch: attempt && 'epoch' in attempt ? attempt.epoch : 0 };
    };
    const status = async (id: string) => (await invocations.get(id))?.status;
    try {
      const ended = await fetched({ begin: true });
      await invocations.finish(ended.id, ended.epoch, 1, { event: 'result', data: '{}' }, null);
      assert.equal(await active.over(ended.id, 'r1'), 'not-held', 'the end has already removed the job');

      const failed = await fetched({ begin: true });
      assert.equal(await invocations.fail(failed.id, 'internal', 'enough'), 'ok');
      assert.equal(await active.over(failed.id, 'r2'), 'not-held');
      assert.equal(await active.over(failed.id, 'r1'), 'dropped', 'the runtime still held the job');

      const forgotten = await fetched({ begin: true });
      assert.equal(await active.over(forgotten.id, 'r1'), 'failed');
      assert.equal((await invocations.get(forgotten.id))?.failure?.code, 'internal');

      const unbegun = await fetched({});
      assert.equal(await active.over(unbegun.id, 'r1'), 'failed');

      const lost = await fetched({ begin: true });
      assert.equal(await active.lost(lost.id, 'r1'), 'failed');
      assert.equal((await invocations.get(lost.id))?.failure?.code, 'runtime-lost');
      assert.equal(await invocations.append(lost.id, lost.epoch, 1, []), 'ok', 'an append without events succeeds');
      assert.equal(await invocations.append(lost.id, lost.epoch, 1, [{ event: 'log', data: '{}' }]), 'ended');

      const cancelled = await fetched({ begin: true, restartable: true });
      assert.equal(await scheduler.cancel(cancelled.id, 'changed my mind'), 'requested');
      assert.equal(await active.lost(cancelled.id, 'r1'), 'cancelled');
      assert.equal(await status(cancelled.id), 'cancelled');

      const restarted = await fetched({ begin: true, restartable: true });
      await invocations.append(restarted.id, restarted.epoch, 1, [{ event: 'message', data: '{}' }]);
      assert.equal(await active.lost(restarted.id, 'r1'), 'waiting');
      assert.equal(await status(restarted.id), 'queued');
      assert.equal(
        await invocations.append(restarted.id, restarted.epoch, 2, [{ event: 'message', data: '{}' }]),
        'stale',
      );
      assert.equal(
        await invocations.finish(restarted.id, restarted.epoch, 3, { event: 'result', data: '{}' }, null),
        'stale',
      );
      // The loss of the last of the three attempts (`MAX_ATTEMPTS`) ends the invocation.
      for (const [attempt, outcome] of [
        [2, 'waiting'],
        [3, 'failed'],
      ] as const) {
        assert.equal(await runtime.fetch(), restarted.id);
        const begun = await invocations.beginAttempt(restarted.id, 'r1');
        assert.ok('attempt' in begun && begun.attempt === attempt);
        assert.equal(await active.lost(restarted.id, 'r1'), outcome);
      }
      const events = await scheduler.events.read(restarted.id, 0);
      assert.deepEqual(
        events.map(({ seq, event }) => [seq, event]),
        [
          [1, 'message'],
          [2, 'log'],
          [3, 'log'],
          [4, 'error'],
        ],
      );

      const cut = await fetched({ begin: true, restartable: true });
      await scheduler.store.redis.hset(scheduler.store.keys.invocation(cut.id), 'inboxCut', 1);
      assert.equal(await active.lost(cut.id, 'r1'), 'failed', 'another attempt would lack messages');

      const expired = await fetched({});
      await scheduler.store.redis.del(scheduler.store.keys.invocation(expired.id));
      assert.equal(await active.lost(expired.id, 'r1'), 'dropped');

      assert.deepEqual(await queue.depth(), { waiting: 0, active: 0 });
      const remainingJobs = await scheduler.store.redis.keys(`${scheduler.store.keys.bull}:*:inv-*`);
      assert.deepEqual(remainingJobs, [], 'no job stays in Redis');
      assert.equal((await scheduler.admission.capacity()).usedSlots, 0);
    } finally {
      await lease.release();
      await runtime.close();
      await scheduler.close();
    }
  });
});
