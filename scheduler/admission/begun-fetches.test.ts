import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { CollectedLog } from '#scheduler/testing/log.ts';
import type { AttemptOutcome } from '../invocations/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { eventually, openTestScheduler, registerRuntime, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { StopReason } from './job.ts';

describe('attempts that begin with the fetch of their jobs', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /**
   * Starts a runtime whose runs end when the test says so or their signal aborts. Each fetch begins up to `begins` attempts.
   * @param joined a scheduler whose platform the runtime joins; a new platform by default
   */
  async function start(begins = 4, joined?: Scheduler, leaseMs?: number) {
    const most = { begins };
    const connections: Redis[] = [];
    const connect = () => {
      const connection = redis.connect();
      connections.push(connection);
      return connection;
    };
    const log = new CollectedLog();
    const { errors } = log;
    const scheduler = openTestScheduler(redis, {
      log,
      connect,
      ...(joined && { prefix: joined.store.keys.prefix }),
      ...(leaseMs && { leaseMs }),
    });
    const runs = new Map<string, { begun: AttemptOutcome | null; finish: () => void }>();
    const refused: string[] = [];
    const hooks = { fetched: (): void => undefined };
    const lease = await scheduler.runtimes.acquire({ name: joined ? 'second' : 'first', slots: 8 });
    const worker = scheduler.createWorker({
      lease,
      slots: 8,
      begins: { most: () => most.begins, showsOwnEvents: false },
      run: async ({ id }, signal, begun) => {
        const done = Promise.withResolvers<void>();
        hooks.fetched();
        const fetched = begun && (await begun());
        if (fetched && 'refused' in fetched) {
          refused.push(id);
          return fetched.refused;
        }
        assert.ok(!runs.has(id), 'an invocation runs once');
        runs.set(id, { begun: fetched, finish: done.resolve });
        signal.addEventListener('abort', () => done.resolve());
        if (!signal.aborted) await done.promise;
        const attempt = fetched ?? (await scheduler.invocations.beginAttempt(id, lease.id));
        if ('refused' in attempt) return;
        const code = (signal.reason as StopReason | undefined)?.code;
        const end =
          code === undefined
            ? ({ event: 'result', data: '{}' } as const)
            : ({ event: 'error', data: '{}', code, message: 'stopped' } as const);
        await scheduler.invocations.finish(id, attempt.epoch, attempt.nextSeq, end, null);
      },
    });
    // The lease opened the last connection but one, and the worker the last.
    const [vital, fetching] = connections.slice(-2);
    assert.ok(vital && fetching);
    await worker.start();
    const close = async () => {
      await worker.drain(0);
      await lease.release();
      await scheduler.close();
      assert.deepEqual(errors, []);
    };
    return {
      scheduler,
      lease,
      worker,
      runs,
      refused,
      hooks,
      errors,
      most,
      close,
      fetching,
      /** The connection of the lease. */
      vital,
      stream: () => fetching.stream,
    };
  }

  const submit = async (scheduler: Scheduler) => (await scheduler.submit(submission())).id;
  const status = async (scheduler: Scheduler, id: string) => (await scheduler.invocations.get(id))?.status;
  const reaches = (scheduler: Scheduler, id: string, wanted: string) =>
    eventually(async () => (await status(scheduler, id)) === wanted, `the invocation is ${wanted}`);

  test('a run gets the outcome of its attempt; attempts past the bound begin later', async () => {
    const { scheduler, runs, stream, close } = await start(1);
    // The first fetch takes one job. The runtime reads the answer after the other two were submitted, so that its second fetch takes both.
    stream().pause();
    const ids = [await submit(scheduler), await submit(scheduler), await submit(scheduler)];
    await reaches(scheduler, ids[0] ?? '', 'running');
    stream().resume();
    await eventually(() => runs.size === 3, 'all run');
    const [first, ...others] = ids.map((id) => runs.get(id)?.begun);
    const record = await scheduler.invocations.get(ids[0] ?? '');
    assert.ok(first && 'epoch' in first && first.epoch === record?.epoch && first.attempt === 1);
    assert.ok(others.includes(null), 'one of two fetched jobs has not begun');
    for (const { finish } of runs.values()) finish();
    for (const id of ids) await reaches(scheduler, id, 'succeeded');
    await close();
  });

  test('a fetch takes fewer jobs when they are large', async () => {
    const { scheduler, runs, hooks, stream, close } = await start();
    stream().pause();
    const input = JSON.stringify('x'.repeat(600_000));
    const ids: string[] = [];
    for (let n = 0; n < 4; n++) ids.push((await scheduler.submit(submission({ input }))).id);
    // The runtime gets the job of its first fetch, and cannot read the reply to the second one.
    hooks.fetched = () => stream().pause();
    stream().resume();
    await eventually(async () => (await scheduler.queue.depth()).active > 1, 'the second fetch has taken jobs');
    const { active, waiting } = await scheduler.queue.depth();
    // The second fetch stopped after two jobs, which together exceed 1 MiB (`FETCH_LENGTH` of `take-jobs` of jobs.lua).
    assert.deepEqual([active, waiting], [3, 1]);
    hooks.fetched = () => undefined;
    stream().resume();
    await eventually(() => runs.size === 4, 'all run');
    for (const { finish } of runs.values()) finish();
    for (const id of ids) await reaches(scheduler, id, 'succeeded');
    await close();
  });

  test('a fetch whose answer was lost is repeated and hands over the same attempts', async () => {
    const { scheduler, runs, stream, close } = await start();
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    const begun = await scheduler.invocations.get(id);
    stream().destroy();
    await eventually(() => runs.has(id), 'the runtime has the job');
    const outcome = runs.get(id)?.begun;
    assert.ok(outcome && 'epoch' in outcome && outcome.epoch === begun?.epoch && outcome.attempt === 1);
    runs.get(id)?.finish();
    await reaches(scheduler, id, 'succeeded');
    await close();
  });

  test('a repeated fetch begins no attempt that the first one has not begun', async () => {
    const { scheduler, runs, stream, close } = await start(0);
    stream().pause();
    const id = await submit(scheduler);
    await eventually(async () => (await scheduler.queue.depth()).active === 1, 'the job is handed over');
    stream().destroy();
    await eventually(() => runs.has(id), 'the runtime has the job');
    assert.equal(runs.get(id)?.begun, null);
    runs.get(id)?.finish();
    await reaches(scheduler, id, 'succeeded');
    await close();
  });

  test('an attempt whose job never reached its runtime does not count, and the job goes back into the queue', async () => {
    const { scheduler, lease, runs, stream, close } = await start();
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    const lostRecord = await scheduler.invocations.get(id);
    const recovery = await scheduler.runtimes.recover(lease.id);
    assert.equal(recovery.waiting, 1);
    const queued = await scheduler.invocations.get(id);
    assert.deepEqual([queued?.status, queued?.attempts], ['queued', 0]);
    assert.equal((await scheduler.admission.capacity()).usedSlots, 0);
    const next = await start(4, scheduler);
    await eventually(() => next.runs.has(id), 'another runtime has the job');
    stream().destroy();
    const outcome = next.runs.get(id)?.begun;
    assert.ok(outcome && 'epoch' in outcome && outcome.attempt === 1 && outcome.epoch > (lostRecord?.epoch ?? 0));
    next.runs.get(id)?.finish();
    await reaches(scheduler, id, 'succeeded');
    assert.equal(runs.size, 0);
    await next.close();
    await close();
  });

  for (const when of ['before', 'after'])
    test(`a runtime runs no attempt if the fetch is answered ${when} it learns that it was declared dead`, async () => {
      // The runtime learns of its loss at the next renewal, after a quarter of the lease; the fetch must not count as lost by then.
      const leaseMs = when === 'after' ? 3000 : undefined;
      const { scheduler, lease, runs, refused, stream, close } = await start(4, undefined, leaseMs);
      const next = await start(4, scheduler);
      await next.worker.pause(true);
      const lost = new Promise<void>((resolve) => lease.onLost(resolve));
      stream().pause();
      const id = await submit(scheduler);
      await reaches(scheduler, id, 'running');
      assert.equal((await scheduler.runtimes.recover(lease.id)).waiting, 1);
      if (when === 'after') {
        await lost;
        const registered = () => scheduler.store.redis.hexists(scheduler.store.keys.runtimes, lease.id);
        await eventually(async () => (await registered()) === 1, 'the runtime is registered again');
      }
      await next.worker.pause(false);
      await eventually(() => next.runs.has(id), 'another runtime has the job');
      stream().resume();
      await eventually(() => runs.has(id) || refused.includes(id), 'the answer has come');
      assert.equal(runs.size, 0, 'only the attempt of the other runtime runs');
      next.runs.get(id)?.finish();
      await reaches(next.scheduler, id, 'succeeded');
      await next.close();
      await close();
    });

  test('an attempt does not run before Redis knows that its runtime has it', async () => {
    const { scheduler, lease, runs, hooks, fetching, stream, close } = await start();
    const { keys, redis: commands } = scheduler.store;
    const unreceived = async () =>
      (await commands.hkeys(keys.fetch(lease.id))).some((field) => field.startsWith('jobs'));
    let isDisconnected = false;
    // The hook runs before this connection has told Redis that the jobs were received.
    hooks.fetched = () => {
      isDisconnected = true;
      stream().destroy();
      fetching.disconnect();
    };
    const id = await submit(scheduler);
    await eventually(() => isDisconnected, 'the runtime has the answer');
    await eventually(() => runs.has(id), 'the attempt runs');
    assert.equal(await unreceived(), false);
    assert.equal((await scheduler.runtimes.recover(lease.id)).failed, 1);
    await close();
  });

  test('an attempt runs while the next fetch waits for a job', async () => {
    const { scheduler, runs, fetching, close } = await start();
    const { bzpopmin } = fetching;
    // Number of waits that began after this point and have ended.
    let endedWaits = 0;
    fetching.bzpopmin = async (...args: readonly unknown[]) => {
      const answer = await Reflect.apply(bzpopmin, fetching, args);
      endedWaits++;
      return answer;
    };
    const id = await submit(scheduler);
    await eventually(() => runs.has(id), 'the attempt runs');
    assert.equal(endedWaits, 0);
    await close();
  });

  test('a runtime that confirms the receipt of jobs twice does not lose the jobs of its next fetch', async () => {
    const { scheduler, runs, hooks, stream, close } = await start();
    hooks.fetched = () => {
      hooks.fetched = () => undefined;
      stream().pause();
    };
    const first = await submit(scheduler);
    await reaches(scheduler, first, 'running');
    await eventually(() => stream().isPaused(), 'the runtime has the answer');
    const second = await submit(scheduler);
    await reaches(scheduler, second, 'running');
    stream().destroy();
    await eventually(() => runs.has(first) && runs.has(second), 'both run');
    for (const { finish } of runs.values()) finish();
    for (const id of [first, second]) await reaches(scheduler, id, 'succeeded');
    await close();
  });

  test('an attempt that its runtime has received fails when the runtime is lost', async () => {
    const { scheduler, lease, runs, close } = await start();
    const id = await submit(scheduler);
    await eventually(() => runs.has(id), 'the runtime has the job');
    assert.equal((await scheduler.runtimes.recover(lease.id)).failed, 1);
    assert.equal((await scheduler.invocations.get(id))?.failure?.code, 'runtime-lost');
    await close();
  });

  test('a failed fetch is repeated even during a pause, and even when fewer attempts may begin', async () => {
    const { scheduler, worker, runs, most, fetching, stream, close } = await start();
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    const runningAtPause = worker.pause(true).then(() => worker.running);
    most.begins = 0;
    fetching.disconnect();
    stream().destroy();
    await once(fetching, 'end');
    // The store gives up the fetch once it finds the connection ended.
    await setImmediate();
    await fetching.connect();
    assert.equal(await runningAtPause, 1, 'the pause waits for the repeated fetch');
    await eventually(() => runs.has(id), 'the attempt runs');
    const outcome = runs.get(id)?.begun;
    assert.ok(outcome && 'epoch' in outcome && outcome.attempt === 1);
    runs.get(id)?.finish();
    await reaches(scheduler, id, 'succeeded');
    await close();
  });

  test('a pause, even one repeated after a failure, resolves once the runtime has the jobs of its present fetch', async () => {
    const { scheduler, worker, runs, stream, vital, close } = await start();
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    vital.disconnect();
    await assert.rejects(worker.pause(true), { code: 'store-unavailable' });
    await vital.connect();
    const runningAtPause = worker.pause(true).then(() => worker.running);
    await eventually(async () => (await scheduler.runtimes.list())[0]?.accepting === false, 'Redis has the pause');
    stream().resume();
    assert.equal(await runningAtPause, 1);
    await eventually(() => runs.has(id), 'the attempt runs');
    runs.get(id)?.finish();
    await reaches(scheduler, id, 'succeeded');
    await close();
  });

  for (const how of ['is late to renew its lease', 'is not registered'])
    test(`a runtime that ${how} gets no job from a fetch that waits in Redis`, async () => {
      const { scheduler, lease, runs, stream, close } = await start();
      const { keys, redis: commands } = scheduler.store;
      const description = (await commands.hget(keys.runtimes, lease.id)) ?? '';
      stream().pause();
      if (how === 'is not registered') await commands.hdel(keys.runtimes, lease.id);
      // A runtime gets jobs only while at least half of its lease is left.
      else await commands.pexpire(keys.alive(lease.id), 0.4 * lease.lengthMs);
      const id = await submit(scheduler);
      const marker = () => commands.zscore(`${keys.jobs}:marker`, '0');
      await eventually(async () => (await marker()) !== null, 'another runtime is woken');
      assert.deepEqual(await scheduler.queue.depth(), { waiting: 1, active: 0 });
      assert.equal(await status(scheduler, id), 'queued');
      assert.equal(await commands.exists(keys.fetch(lease.id)), 0);
      await commands.hset(keys.runtimes, lease.id, description);
      await commands.pexpire(keys.alive(lease.id), lease.lengthMs);
      stream().resume();
      await eventually(() => runs.has(id), 'the runtime has the job');
      runs.get(id)?.finish();
      await reaches(scheduler, id, 'succeeded');
      await close();
    });

  test('a runtime of a large platform waits longer, but connects again when Redis answers no renewal of its lease', async () => {
    const { scheduler, runs, fetching, vital, close } = await start(4, undefined, 400);
    await Promise.all(Array.from({ length: 40 }, (_, i) => registerRuntime(scheduler.store, `other-${i}`)));
    const waits: number[] = [];
    const { sendCommand } = fetching;
    fetching.sendCommand = (command, ...more) => {
      if (command.name === 'bzpopmin') waits.push(Number(command.args.at(-1)));
      return sendCommand.call(fetching, command, ...more);
    };
    const run = async () => {
      const id = await submit(scheduler);
      await eventually(() => runs.has(id), 'the runtime has the job');
      runs.get(id)?.finish();
      await reaches(scheduler, id, 'succeeded');
    };
    await run();
    await eventually(() => waits.at(-1) === 8, 'the next wait is the longest, 8 s');
    const lost = once(fetching, 'close');
    vital.stream.pause();
    await lost;
    vital.stream.resume();
    await run();
    await close();
  });

  test('a job with unreadable data does not keep the runtime from other jobs', async () => {
    const { scheduler, runs, errors, stream, close } = await start(1);
    const { keys, redis: commands } = scheduler.store;
    stream().pause();
    const ids = [await submit(scheduler), await submit(scheduler), await submit(scheduler)];
    await reaches(scheduler, ids[0] ?? '', 'running');
    await commands.hset(`${keys.jobs}:${ids[1]}`, 'data', 'no JSON');
    stream().resume();
    await eventually(() => runs.size === 2, 'the others run');
    assert.ok(runs.has(ids[2] ?? ''));
    assert.ok(errors.splice(0).every((error) => error instanceof SyntaxError));
    for (const { finish } of runs.values()) finish();
    await reaches(scheduler, ids[2] ?? '', 'succeeded');
    await close();
  });

  test('a drain does not wait past its deadline for the answer of a fetch', { timeout: 9000 }, async () => {
    const { scheduler, worker, stream, close } = await start();
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    await worker.drain(0);
    assert.equal(await status(scheduler, id), 'queued');
    await close();
  });

  test('a cancel that arrives before the answer of the fetch reaches the run', async () => {
    const { scheduler, lease, runs, stream, close } = await start();
    const heard = Promise.withResolvers<void>();
    // This listener is registered after the worker's, so it is called after it.
    const stop = await scheduler.control.onCancel(lease.id, () => heard.resolve());
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    assert.equal(await scheduler.cancel(id, 'too late'), 'requested');
    await heard.promise;
    assert.equal(runs.size, 0);
    stream().resume();
    await reaches(scheduler, id, 'cancelled');
    stop();
    await close();
  });

  test('a drain waits for an attempt that began before the drain, and takes no other job', async () => {
    const { scheduler, worker, runs, stream, close } = await start();
    stream().pause();
    const id = await submit(scheduler);
    await reaches(scheduler, id, 'running');
    const drained = worker.drain(30_000);
    await eventually(async () => (await scheduler.runtimes.list())[0]?.accepting === false, 'the runtime leaves');
    const submittedLater = await submit(scheduler);
    stream().resume();
    await eventually(() => runs.has(id), 'the runtime has the job');
    runs.get(id)?.finish();
    await drained;
    assert.equal(await status(scheduler, id), 'succeeded');
    assert.equal(await status(scheduler, submittedLater), 'queued');
    assert.deepEqual(await scheduler.queue.depth(), { waiting: 1, active: 0 });
    await close();
  });
});
