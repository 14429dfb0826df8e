import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { FailureCode } from '../invocations/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { collect, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { Capacity } from './capacity.ts';
import type { InvocationJob, StopReason } from './job.ts';

/** A runtime without inferlets: what it runs is up to the test. */
async function startRuntime(scheduler: Scheduler, capacity: Capacity) {
  const started: string[] = [];
  const arrivals: number[] = [];
  const open = new Map<string, () => void>();
  const errors: unknown[] = [];
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots: capacity.slots });
  const run = async (job: InvocationJob, signal: AbortSignal) => {
    const attempt = await scheduler.invocations.beginAttempt(job.id, lease.id);
    if ('refused' in attempt) return;
    started.push(job.id);
    arrivals.push(job.arrival);
    if (job.input === '"throw"') throw new Error('broken host');
    if (job.input === '"return"') return;
    const stopped = await new Promise<StopReason | null>((resolve) => {
      open.set(job.id, () => resolve(null));
      signal.addEventListener('abort', () => {
        if (job.input !== '"deaf"') resolve(signal.reason as StopReason);
      });
      if (signal.aborted) resolve(signal.reason as StopReason);
    });
    open.delete(job.id);
    if (stopped?.code === 'runtime-lost') return;
    const code: FailureCode | undefined = stopped?.code;
    await scheduler.invocations.finish(
      job.id,
      attempt.epoch,
      attempt.nextSeq,
      code === undefined
        ? { event: 'result', data: '{}' }
        : { event: 'error', data: JSON.stringify({ code }), code, message: stopped?.message ?? '' },
      null,
    );
  };
  const worker = scheduler.createWorker({ lease, capacity, run, onError: (error) => errors.push(error) });
  await worker.start();
  return { worker, lease, started, arrivals, open, errors };
}

describe('admission worker', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  after(() => redis.stop());

  /** One scheduler per test, on an empty line. */
  async function withRuntime(
    capacity: Capacity,
    body: (runtime: Awaited<ReturnType<typeof startRuntime>>) => Promise<void>,
  ) {
    scheduler = openTestScheduler(redis);
    const runtime = await startRuntime(scheduler, capacity);
    try {
      await body(runtime);
      await runtime.worker.drain(0);
      assert.deepEqual(await scheduler.queue.depth(), { waiting: (await scheduler.queue.waiting()).length, active: 0 });
    } finally {
      await runtime.worker.drain(0);
      await runtime.lease.release();
      await scheduler.close();
    }
  }

  const status = async (id: string) => (await scheduler.invocations.get(id))?.status;
  const submit = async (options: Parameters<typeof submission>[0] = {}) =>
    (await scheduler.submit(submission(options))).id;

  test('first come, first served, as many as there are slots', async () => {
    await withRuntime({ slots: 3, pages: {} }, async ({ started, open, worker }) => {
      const ids: string[] = [];
      for (let i = 0; i < 30; i += 1) ids.push(await submit());
      let most = 0;
      await eventually(() => {
        most = Math.max(most, worker.running);
        for (const finish of [...open.values()]) finish();
        return started.length === 30;
      }, 'all started');
      assert.deepEqual(started, ids);
      assert.ok(most <= 3);
      await eventually(async () => (await Promise.all(ids.map(status))).every((s) => s === 'succeeded'), 'all ended');
      await eventually(() => worker.running === 0, 'nothing runs');
    });
  });

  test('a burst of many starts completely, in order', async () => {
    await withRuntime({ slots: 500, pages: {} }, async ({ started, arrivals, open }) => {
      const ids = await Promise.all(Array.from({ length: 400 }, () => submit()));
      await eventually(() => started.length === 400, 'all started');
      assert.deepEqual(new Set(started), new Set(ids));
      assert.deepEqual(
        arrivals,
        arrivals.toSorted((a, b) => a - b),
      );
      for (const finish of [...open.values()]) finish();
      await eventually(async () => (await scheduler.queue.depth()).active === 0, 'all handed in');
    });
  });

  test('expected pages bound who starts, nobody overtakes, and a finished run makes room', async () => {
    await withRuntime({ slots: 10, pages: { m: 100 } }, async ({ started, open, worker }) => {
      const [a, b, c, d] = [
        await submit({ expectedPages: { m: 60 } }),
        await submit({ expectedPages: { m: 60 } }),
        await submit({ expectedPages: { m: 10 } }),
        await submit({ expectedPages: { m: 100 } }),
      ];
      await eventually(() => started.length === 1 && worker.held > 0, 'one runs, others wait');
      open.get(a)?.();
      await eventually(() => started.length === 3, 'room for two');
      assert.deepEqual(started, [a, b, c]);
      open.get(b)?.();
      open.get(c)?.();
      await eventually(() => started.length === 4, 'and for the large one');
      open.get(d)?.();
      await eventually(async () => (await status(d)) === 'succeeded', 'the end');
    });
  });

  test('pages are learned from past runs', async () => {
    await withRuntime({ slots: 10, pages: { m: 10 } }, async ({ started, open, worker }) => {
      const job = { tenant: 'default', function: 'story', version: 'abc123' } as InvocationJob;
      worker.observePages(job, { m: 6 });
      const a = await submit();
      await submit();
      await eventually(() => started.length === 1 && worker.held === 1, 'one runs, one waits');
      worker.resize({ slots: 10, pages: { m: 12 } });
      await eventually(() => started.length === 2, 'more pages');
      for (const finish of [...open.values()]) finish();
      await eventually(async () => (await status(a)) === 'succeeded', 'the end');
    });
  });

  test('cancelled while running: the runtime is told, and ends it', async () => {
    await withRuntime({ slots: 2, pages: {} }, async ({ open }) => {
      const id = await submit();
      await eventually(() => open.has(id), 'it runs');
      const events = collect(scheduler.events.follow(id, 0));
      assert.equal(await scheduler.cancel(id, 'changed my mind'), 'requested');
      assert.deepEqual(
        (await events).map(({ event, data }) => [event, JSON.parse(data).code]),
        [['error', 'cancelled']],
      );
      assert.equal(await status(id), 'cancelled');
      assert.equal(await scheduler.cancel(id, 'again'), 'ended');
      assert.equal(await scheduler.cancel('nobody', 'x'), 'unknown');
      const { redis: client, keys } = scheduler.store;
      await eventually(
        async () => (await client.keys(`${keys.prefix}:runtime:*:cancels`)).length === 0,
        'no cancel is left',
      );
    });
  });

  test('cancelled in line, or held for want of pages: ended at once, and never started', async () => {
    await withRuntime({ slots: 1, pages: {} }, async ({ open, started }) => {
      const first = await submit();
      await eventually(() => open.has(first), 'the first runs');
      const second = await submit();
      const third = await submit();
      assert.equal(await scheduler.cancel(second, 'no'), 'cancelled');
      assert.equal(await status(second), 'cancelled');
      open.get(first)?.();
      await eventually(() => open.has(third), 'the third runs');
      assert.deepEqual(started, [first, third]);
      open.get(third)?.();
    });
    await withRuntime({ slots: 5, pages: { m: 10 } }, async ({ open, started, worker }) => {
      const first = await submit({ expectedPages: { m: 10 } });
      await eventually(() => open.has(first), 'the first runs');
      const second = await submit({ expectedPages: { m: 10 } });
      await eventually(() => worker.held === 1, 'the second is held');
      assert.equal(await scheduler.cancel(second, 'no'), 'cancelled');
      await eventually(() => worker.held === 0, 'the second is let go');
      await eventually(async () => (await scheduler.queue.depth()).active === 1, 'and its job with it');
      assert.deepEqual(started, [first]);
      open.get(first)?.();
    });
  });

  test('a run that throws, or forgets to end its invocation, fails it', async () => {
    await withRuntime({ slots: 2, pages: {} }, async ({ errors }) => {
      for (const input of ['"throw"', '"return"']) {
        const id = await submit({ input });
        const events = await collect(scheduler.events.follow(id, 0));
        assert.equal(JSON.parse(events.at(-1)?.data ?? '{}').code, 'internal');
      }
      assert.match(String(errors[0]), /broken host/);
    });
  });

  test('the deadline stops a run', async () => {
    await withRuntime({ slots: 2, pages: {} }, async () => {
      const id = await submit({ deadlineMs: 150 });
      const events = await collect(scheduler.events.follow(id, 0));
      assert.equal(JSON.parse(events.at(-1)?.data ?? '{}').code, 'deadline-exceeded');
    });
  });

  test('draining gives back what has not begun, waits for what runs, and stops what stays', async () => {
    scheduler = openTestScheduler(redis);
    const { worker, lease, open, started } = await startRuntime(scheduler, { slots: 2, pages: { m: 10 } });
    const running = await submit();
    const stays = await submit({ expectedPages: { m: 10 } });
    await eventually(() => open.has(running) && open.has(stays), 'two run');
    const restartable = await submit({ restartable: true });
    open.get(running)?.();
    const deaf = await submit({ input: '"deaf"' });
    await eventually(() => open.has(restartable), 'the third runs');
    const draining = worker.drain(100);
    await draining;
    assert.equal(await status(running), 'succeeded');
    assert.equal((await scheduler.invocations.get(stays))?.failure?.code, 'terminated');
    assert.equal((await scheduler.invocations.get(restartable))?.failure?.code, 'terminated');
    assert.equal(await status(deaf), 'queued');
    assert.deepEqual(await scheduler.queue.depth(), { waiting: 1, active: 0 });
    assert.equal(started.length, 3);
    await lease.release();
    assert.deepEqual(await scheduler.runtimes.list(), []);

    // The next runtime goes on; one that does not listen is taken from it at the end of the drain.
    const next = await startRuntime(scheduler, { slots: 2, pages: {} });
    await eventually(() => next.open.has(deaf), 'the one given back runs');
    await next.worker.drain(0);
    assert.equal((await scheduler.invocations.get(deaf))?.failure?.code, 'terminated');
    await next.lease.release();
    await scheduler.close();
  });

  test('a killed and restarted Redis: what runs goes on, what comes is started', async () => {
    await withRuntime({ slots: 4, pages: {} }, async ({ open, lease }) => {
      scheduler.reaper.start();
      const before = await submit();
      await eventually(() => open.has(before), 'the first runs');
      await redis.restart();
      const after = await submit();
      await eventually(() => open.has(after), 'the second runs');
      open.get(before)?.();
      open.get(after)?.();
      await eventually(
        async () => (await status(before)) === 'succeeded' && (await status(after)) === 'succeeded',
        'both end',
      );
      assert.ok((await scheduler.runtimes.alive()).some(({ id }) => id === lease.id));
    });
  });
});
