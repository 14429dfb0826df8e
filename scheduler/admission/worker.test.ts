import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Redis } from 'ioredis';
import type { FailureCode } from '../invocations/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { durably } from '../store/testing/lost-writes.ts';
import { collect, eventually, hold, openTestScheduler, submission } from '../testing/fixture.ts';
import { CollectedLog } from '../testing/log.ts';
import { TestRedis } from '../testing/redis.ts';
import type { InvocationJob, StopReason } from './job.ts';

interface Offer {
  readonly slots: number;
  readonly pages?: Record<string, number>;
}

const MODEL = { contextLength: 2048, vocabularySize: 100, pageSize: 16, traits: [] };

/**
 * A runtime without inferlets; the test decides when each run ends. The inputs `"throw"` and `"return"` end a run at
 * once, without an end of the invocation. A run with the input `"deaf"` ignores the request to stop.
 */
async function startRuntime(scheduler: Scheduler, { slots, pages = {} }: Offer) {
  const started: string[] = [];
  const arrivals: number[] = [];
  const open = new Map<string, () => void>();
  const attempts = new Map<string, { readonly epoch: number; readonly nextSeq: number; readonly attempt: number }>();
  const models = Object.entries(pages).map(([name, pageCount]) => ({ ...MODEL, name, pageCount }));
  const lease = await scheduler.runtimes.acquire({ name: 'runtime-1', slots, models });
  const run = async (job: InvocationJob, signal: AbortSignal) => {
    const attempt = await scheduler.invocations.beginAttempt(job.id, lease.id);
    if ('refused' in attempt) return;
    started.push(job.id);
    attempts.set(job.id, attempt);
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
  const worker = scheduler.createWorker({ lease, slots, run });
  await worker.start();
  return { worker, lease, started, arrivals, open, attempts };
}

describe('admission worker', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let log: CollectedLog;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  after(() => redis.stop());

  /** Runs a test with a runtime of its own, on an empty queue. */
  async function withRuntime(
    capacity: Offer,
    body: (runtime: Awaited<ReturnType<typeof startRuntime>>) => Promise<void>,
    clock = Date.now,
  ) {
    log = new CollectedLog();
    scheduler = openTestScheduler(redis, { clock, log });
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

  test('invocations start in order of arrival, at most as many at once as there are slots', async () => {
    await withRuntime({ slots: 3 }, async ({ started, open, worker }) => {
      const ids: string[] = [];
      for (let i = 0; i < 30; i += 1) ids.push(await submit());
      let mostRunning = 0;
      await eventually(() => {
        mostRunning = Math.max(mostRunning, worker.running);
        for (const finish of [...open.values()]) finish();
        return started.length === 30;
      }, 'all started');
      assert.deepEqual(started, ids);
      assert.ok(mostRunning <= 3);
      await eventually(async () => (await Promise.all(ids.map(status))).every((s) => s === 'succeeded'), 'all ended');
      await eventually(() => worker.running === 0, 'nothing runs');
    });
  });

  test('a burst of 400 invocations starts completely, in order of arrival', async () => {
    await withRuntime({ slots: 500 }, async ({ started, arrivals, open }) => {
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

  test('a tenant that comes late starts beside a flood, and each tenant keeps its own order', async () => {
    // Turns depend on run durations; this clock keeps the delays of the test process out of them.
    let now = Date.now();
    const clock = () => now++;
    const body = async ({ started, open }: Awaited<ReturnType<typeof startRuntime>>) => {
      const flood: string[] = [];
      const late: string[] = [];
      for (let i = 0; i < 60; i += 1) flood.push(await submit({ tenant: 'flood' }));
      for (let i = 0; i < 15; i += 1) late.push(await submit({ tenant: 'late' }));
      await eventually(() => {
        for (const finish of [...open.values()]) finish();
        return started.length === 75;
      }, 'all started');
      const order = (ids: readonly string[]) => started.filter((id) => ids.includes(id));
      assert.deepEqual(order(flood), flood);
      assert.deepEqual(order(late), late);
      assert.ok(started.indexOf(late.at(-1)!) < 60, 'the late tenant takes turns with the flood');
      const { redis: client, keys } = scheduler.store;
      assert.ok((await client.xlen(`${keys.jobs}:events`)) < 300, 'the event stream of BullMQ is bounded');
    };
    await withRuntime({ slots: 4 }, body, clock);
  });

  test('expected pages limit starts, a small invocation overtakes no large one, and an end makes room', async () => {
    await withRuntime({ slots: 10, pages: { m: 100 } }, async ({ started, open }) => {
      const [a, b, c, d] = [
        await submit({ expectedPages: { m: 60 } }),
        await submit({ expectedPages: { m: 60 } }),
        await submit({ expectedPages: { m: 10 } }),
        await submit({ expectedPages: { m: 100 } }),
      ];
      await eventually(() => open.has(a), 'the first runs');
      assert.deepEqual(await scheduler.queue.waiting(), [b, c, d]);
      open.get(a)?.();
      await eventually(() => started.length === 3, 'room for two');
      assert.deepEqual(started, [a, b, c]);
      open.get(b)?.();
      open.get(c)?.();
      await eventually(() => started.length === 4, 'room for the large one');
      open.get(d)?.();
      await eventually(async () => (await status(d)) === 'succeeded', 'the end');
    });
  });

  test('pages learned from past runs limit starts; more pages and a larger quota start more invocations', async () => {
    await withRuntime({ slots: 10, pages: { m: 10 } }, async ({ started, open, lease }) => {
      const job = { tenant: 'default', function: 'story', version: 'abc123' };
      await scheduler.admission.observe(job, { pages: { m: 6 }, memoryMb: 1 });
      const a = await submit();
      await submit();
      await submit();
      await eventually(() => started.length === 1, 'one runs, two wait');
      assert.equal((await scheduler.queue.depth()).waiting, 2);
      // The quota has room for two invocations of 6 pages, and later for three.
      await scheduler.store.redis.hset(`${scheduler.store.keys.account('default')}:quotas`, 'kv-pages', 12);
      await lease.describe({ models: [{ ...MODEL, name: 'm', pageCount: 100 }] });
      await eventually(() => started.length === 2, 'more pages');
      assert.equal((await scheduler.queue.depth()).waiting, 1);
      await scheduler.store.redis.hset(`${scheduler.store.keys.account('default')}:quotas`, 'kv-pages', 18);
      await scheduler.pokeAdmission('default');
      await eventually(() => started.length === 3, 'a larger quota');
      for (const finish of [...open.values()]) finish();
      await eventually(async () => (await status(a)) === 'succeeded', 'the end');
    });
  });

  test('a requeued invocation keeps its place and expects the pages that its run held, even before that run ends', async () => {
    await withRuntime({ slots: 3, pages: { m: 20 } }, async ({ started, open, attempts }) => {
      const first = await submit({ expectedPages: { m: 12 } });
      const victim = await submit({ restartable: true, expectedPages: { m: 6 } });
      const third = await submit({ expectedPages: { m: 10 } });
      await eventually(() => open.has(victim), 'two run');
      const { epoch, nextSeq } = attempts.get(victim) ?? { epoch: 0, nextSeq: 0 };
      const requeue = () => scheduler.invocations.requeue(victim, epoch, nextSeq, 'Room for others.', null, { m: 11 });
      assert.equal(await requeue(), 'requeued');
      assert.equal(await requeue(), 'requeued');
      assert.deepEqual(await scheduler.queue.waiting(), [victim, third], 'the victim waits before the third');
      // The end of the first makes room for the victim's next attempt. The victim now expects 11 of the 20 pages, so
      // the third, which expects 10, still waits.
      open.get(first)?.();
      await eventually(() => attempts.get(victim)?.epoch !== epoch, 'the victim starts again');
      await eventually(() => started.length === 3, 'the first has started once, the victim twice');
      assert.equal(attempts.get(victim)?.attempt, 2);
      assert.deepEqual(
        (await scheduler.events.read(victim, 0)).map(({ event }) => event),
        ['log'],
      );
      open.get(victim)?.();
      await eventually(() => open.has(third), 'the third');
      open.get(third)?.();
      await eventually(async () => (await status(victim)) === 'succeeded', 'the end');
    });
  });

  test('when a cancelled run was requeued, its end leaves the stored cancel to the next attempt', async () => {
    await withRuntime({ slots: 2 }, async ({ started, open, attempts, worker, lease }) => {
      const id = await submit({ restartable: true, input: '"deaf"' });
      await eventually(() => open.has(id), 'the invocation runs');
      const endFirst = open.get(id);
      const { epoch, nextSeq } = attempts.get(id) ?? { epoch: 0, nextSeq: 0 };
      await scheduler.control.tellCancel(lease.id, id, 'stop');
      assert.equal(await scheduler.invocations.requeue(id, epoch, nextSeq, 'Room for others.', null), 'requeued');
      await eventually(() => started.length === 2 && open.get(id) !== endFirst, 'the invocation runs again');
      const endSecond = open.get(id);
      endFirst?.();
      await eventually(() => worker.running === 1, 'the first run is over');
      const { redis: client, keys } = scheduler.store;
      // Redis answers these pings only after it has run the commands of the first run's end.
      for (let i = 0; i < 10; i += 1) await client.ping();
      assert.equal(await client.hget(keys.cancels(lease.id), id), 'stop');
      endSecond?.();
      await eventually(async () => (await status(id)) === 'succeeded', 'the end');
    });
  });

  test('a cancel reaches the runtime of a running invocation, which ends it as cancelled', async () => {
    await withRuntime({ slots: 2 }, async ({ open }) => {
      const id = await submit();
      await eventually(() => open.has(id), 'the invocation runs');
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
        'no cancel is stored',
      );
    });
  });

  test('a cancel ends an invocation that waits for a slot or for pages, and it never starts', async () => {
    await withRuntime({ slots: 1 }, async ({ open, started }) => {
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
    await withRuntime({ slots: 5, pages: { m: 10 } }, async ({ open, started }) => {
      const first = await submit({ expectedPages: { m: 10 } });
      await eventually(() => open.has(first), 'the first runs');
      const second = await submit({ expectedPages: { m: 10 } });
      assert.equal(await scheduler.cancel(second, 'no'), 'cancelled');
      assert.deepEqual(await scheduler.queue.depth(), { waiting: 0, active: 1 });
      assert.deepEqual(started, [first]);
      open.get(first)?.();
    });
  });

  test('an invocation fails as internal when its run throws or returns without an end', async () => {
    await withRuntime({ slots: 2 }, async () => {
      for (const input of ['"throw"', '"return"']) {
        const id = await submit({ input });
        const events = await collect(scheduler.events.follow(id, 0));
        assert.equal(JSON.parse(events.at(-1)?.data ?? '{}').code, 'internal');
      }
      assert.match(String(log.errors[0]), /broken host/);
    });
  });

  test('a run is stopped with `deadline-exceeded` when its deadline passes', async () => {
    await withRuntime({ slots: 2 }, async () => {
      const id = await submit({ deadlineMs: 150 });
      const events = await collect(scheduler.events.follow(id, 0));
      assert.equal(JSON.parse(events.at(-1)?.data ?? '{}').code, 'deadline-exceeded');
    });
  });

  test('drain returns jobs that have not begun, waits for runs, and terminates the rest at its deadline', async () => {
    const connections: Redis[] = [];
    const connect = () => {
      const connection = redis.connect();
      connections.push(connection);
      return connection;
    };
    scheduler = openTestScheduler(redis, { connect });
    const { worker, lease, open, started } = await startRuntime(scheduler, { slots: 4 });
    // The worker opened the last connection but one, and its start the last.
    const fetching = connections.at(-2);
    const ending = await submit();
    const stays = await submit();
    const restartable = await submit({ restartable: true });
    await eventually(() => open.size === 3, 'three run');
    // Redis hands this job over, and the runtime gets it once the drain has begun.
    fetching?.stream.pause();
    const deaf = await submit({ input: '"deaf"' });
    await eventually(async () => (await scheduler.queue.depth()).active === 4, 'Redis has handed the job over');
    const drained = worker.drain(5000);
    await eventually(async () => (await scheduler.runtimes.list())[0]?.accepting === false, 'the drain has begun');
    fetching?.stream.resume();
    // Sooner than the search for lost jobs (`LOST_REPLY_MS` of worker.ts), which would return it too.
    await eventually(async () => (await scheduler.queue.depth()).waiting === 1, 'the job is returned', 2500);
    open.get(ending)?.();
    await drained;
    assert.equal(await status(ending), 'succeeded', 'the drain has waited');
    assert.equal((await scheduler.invocations.get(stays))?.failure?.code, 'terminated');
    assert.equal((await scheduler.invocations.get(restartable))?.failure?.code, 'terminated');
    assert.equal(await status(deaf), 'queued');
    assert.deepEqual(await scheduler.queue.depth(), { waiting: 1, active: 0 });
    assert.deepEqual(started, [ending, stays, restartable]);
    await lease.release();
    assert.deepEqual(await scheduler.runtimes.list(), []);

    // The next runtime runs the returned job; its drain takes the job away at the deadline, since the run ignores the stop.
    const next = await startRuntime(scheduler, { slots: 2 });
    await eventually(() => next.open.has(deaf), 'the returned job runs');
    await next.worker.drain(0);
    assert.equal((await scheduler.invocations.get(deaf))?.failure?.code, 'terminated');
    await next.lease.release();
    await scheduler.close();
  });

  test('a drain that cannot give back a job fails, and leaves no timer of its run', async (t) => {
    const deadlineMs = 1_000_000_000;
    const setTimer = t.mock.method(globalThis, 'setTimeout');
    const clearTimer = t.mock.method(globalThis, 'clearTimeout');
    scheduler = openTestScheduler(redis);
    const { worker, lease, open } = await startRuntime(scheduler, { slots: 1 });
    const id = await submit({ input: '"deaf"', deadlineMs });
    await eventually(() => open.has(id), 'the invocation runs');
    const timer = setTimer.mock.calls.find(({ arguments: [, ms] }) => Number(ms) > deadlineMs / 2)?.result;
    const isCleared = () => clearTimer.mock.calls.some(({ arguments: [cleared] }) => cleared === timer);
    assert.ok(timer !== undefined && !isCleared());
    t.mock.method(scheduler.active, 'giveBack', async () => {
      throw new StoreError('store-unavailable', 'Redis is away.');
    });
    await assert.rejects(worker.drain(0), { code: 'store-unavailable' });
    assert.ok(isCleared());
    open.get(id)?.();
    await lease.release();
    await scheduler.close();
  });

  test('a runtime whose clock is an hour slow gives back a job that it does not know of', async (t) => {
    const now = Date.now.bind(Date);
    t.mock.method(Date, 'now', () => now() - 3_600_000);
    scheduler = openTestScheduler(redis);
    const { invocations, runtimes, store } = scheduler;
    const lease = await runtimes.acquire({ name: 'late', slots: 1 });
    const id = await submit({ submittedAt: store.clock() });
    await hold(scheduler, id, lease.id);
    // The real fetch stores the time of Redis; `hold` has stored that of the slow clock.
    const [seconds] = await store.redis.time();
    await store.redis.hset(`${store.keys.jobs}:${id}`, 'processedOn', Number(seconds) * 1000);
    const run = async (job: InvocationJob) => {
      const attempt = await invocations.beginAttempt(job.id, lease.id);
      assert.ok('epoch' in attempt);
      await invocations.finish(job.id, attempt.epoch, attempt.nextSeq, { event: 'result', data: '{}' }, null);
    };
    const worker = scheduler.createWorker({ lease, slots: 1, run });
    await worker.start();
    try {
      await eventually(async () => (await status(id)) === 'succeeded', 'the job returns and runs');
    } finally {
      await worker.drain(0);
      await lease.release();
      await scheduler.close();
    }
  });

  test('after a SIGKILL and restart of Redis, running invocations end and new ones start', async () => {
    await withRuntime({ slots: 4 }, async ({ open, lease }) => {
      scheduler.reaper.start();
      // A busy Redis writes to its disk late; `durably` waits for these writes, which a kill would lose.
      const before = await durably(redis, async () => {
        const id = await submit();
        await eventually(() => open.has(id), 'the first runs');
        return id;
      });
      await redis.restart();
      const after = await submit();
      await eventually(() => open.has(after), 'the second runs');
      open.get(before)?.();
      open.get(after)?.();
      await eventually(
        async () => (await status(before)) === 'succeeded' && (await status(after)) === 'succeeded',
        'both end',
      );
      await eventually(
        async () => (await scheduler.runtimes.alive()).some(({ id }) => id === lease.id),
        'the lease of the runtime holds',
      );
    });
  });
});
