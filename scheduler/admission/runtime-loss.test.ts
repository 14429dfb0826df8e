import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import type { AttemptOutcome } from '../invocations/types.ts';
import { type RuntimeLease, unregister } from '../runtimes/lease.ts';
import type { Scheduler } from '../scheduler.ts';
import { eventually, offer, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { AdmissionWorker } from './worker.ts';

/** A lease that no runtime renews within a test. */
const LONG_MS = 120_000;

interface Run {
  readonly runtime: string;
  readonly id: string;
  /** Begins the attempt and returns its outcome. */
  readonly begin: () => Promise<AttemptOutcome>;
  readonly finish: () => void;
}

describe('a runtime that is lost or leaves', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Opens a scheduler, and starts runtimes whose invocations begin and end at once or when the test orders it. */
  async function open(leaseMs: number) {
    const log = new CollectedLog();
    const { errors } = log;
    const scheduler = openTestScheduler(redis, { leaseMs, log });
    const runs: Run[] = [];
    const runtimes: { readonly worker: AdmissionWorker; readonly lease: RuntimeLease }[] = [];
    const start = async (name: string, slots: number, when: 'at once' | 'on order', pages = 0) => {
      const model = { contextLength: 1, vocabularySize: 1, pageSize: 1, traits: [], name: 'm', pageCount: pages };
      const lease = await scheduler.runtimes.acquire({ name, slots, models: pages > 0 ? [model] : [] });
      const worker = scheduler.createWorker({
        lease,
        slots,
        run: async (job, signal) => {
          const ordered = Promise.withResolvers<void>();
          const done = Promise.withResolvers<void>();
          const begun = Promise.withResolvers<AttemptOutcome>();
          const begin = () => {
            ordered.resolve();
            return begun.promise;
          };
          const finish = () => {
            ordered.resolve();
            done.resolve();
          };
          runs.push({ runtime: name, id: job.id, begin, finish });
          signal.addEventListener('abort', () => done.resolve());
          if (when === 'on order') await Promise.race([ordered.promise, done.promise]);
          if (signal.aborted) return;
          const outcome = await scheduler.invocations.beginAttempt(job.id, lease.id, undefined, job.fetchToken);
          begun.resolve(outcome);
          if ('refused' in outcome) return outcome.refused;
          if (when === 'on order') await done.promise;
          const end = { event: 'result', data: '{}' } as const;
          await scheduler.invocations.finish(job.id, outcome.epoch, outcome.nextSeq, end, null);
        },
      });
      await worker.start();
      runtimes.push({ worker, lease });
      return { worker, lease };
    };
    const close = async () => {
      await Promise.all(runtimes.map(({ worker }) => worker.drain(0)));
      await Promise.all(runtimes.map(({ lease }) => lease.release()));
      await scheduler.close();
      assert.deepEqual(errors, []);
    };
    return { scheduler, runs, start, close };
  }

  const submit = async (scheduler: Scheduler, expectedPages = 0) =>
    (await scheduler.submit(submission({ expectedPages: { m: expectedPages } }))).id;
  const succeeded = (scheduler: Scheduler, id: string) =>
    eventually(async () => (await scheduler.invocations.get(id))?.status === 'succeeded', 'the invocation succeeds');

  test('a runtime declared dead before it began an invocation cannot begin it; another runtime runs it', async () => {
    const { scheduler, runs, start, close } = await open(LONG_MS);
    const { lease } = await start('slow', 1, 'on order');
    const id = await submit(scheduler);
    await eventually(() => runs.length === 1, 'the runtime has the job');
    assert.equal((await scheduler.runtimes.recover(lease.id)).waiting, 1);
    assert.deepEqual(await runs[0]?.begin(), { refused: 'not-held' });
    assert.equal((await scheduler.invocations.get(id))?.status, 'queued');
    await start('next', 1, 'at once');
    await succeeded(scheduler, id);
    assert.equal((await scheduler.admission.capacity()).usedSlots, 0);
    await close();
  });

  test('a runtime that was declared dead fetches no job; another runtime runs the next invocation', async () => {
    const { scheduler, runs, start, close } = await open(LONG_MS);
    const { lease } = await start('slow', 1, 'at once');
    await scheduler.runtimes.recover(lease.id);
    const extraLease = await offer(scheduler, { slots: 4 });
    const id = await submit(scheduler);
    await start('next', 1, 'at once');
    await succeeded(scheduler, id);
    assert.equal(runs.length, 1);
    await extraLease.release();
    await close();
  });

  for (const found of ['by its lease', 'among orphans'])
    test(`when a runtime is found dead ${found}, recovery spares a job that this runtime has fetched again`, async () => {
      // A runtime that was declared dead learns it when it next renews its lease, within 300 ms.
      const { scheduler, runs, start, close } = await open(1200);
      const { lease } = await start('slow', 1, 'on order');
      const id = await submit(scheduler);
      await eventually(() => runs.length === 1, 'the runtime has the job');
      const observer = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix });
      const { active, runtimes, store } = observer;
      const lost = active.lost.bind(active);
      // The observer's call waits until the runtime has recovered its own jobs and fetched this job again.
      active.lost = async (...job) => {
        await eventually(() => runs.length === 2, 'the runtime has the job again');
        assert.ok('epoch' in ((await runs[1]?.begin()) ?? {}));
        return lost(...job);
      };
      const recoverUnregistered = async () => {
        // Loads both scripts into Redis, so that the two calls below run back to back: the runtime may register again at any time.
        await unregister(store, 'none');
        await runtimes.recoverOrphans();
        return (await Promise.all([unregister(store, lease.id), runtimes.recoverOrphans()]))[1];
      };
      const recovery = await (found === 'among orphans' ? recoverUnregistered() : runtimes.recover(lease.id));
      assert.deepEqual(recovery, { waiting: 0, failed: 0, cancelled: 0, dropped: 0 });
      await eventually(() => runs.length === 2, 'the runtime has the job again');
      runs[1]?.finish();
      await succeeded(scheduler, id);
      await observer.close();
      await close();
    });

  test('pages and slots held on a leaving runtime do not count as capacity of the other runtimes', async () => {
    const { scheduler, runs, start, close } = await open(LONG_MS);
    const leaving = await start('leaving', 3, 'on order', 30);
    for (let i = 0; i < 3; i += 1) await submit(scheduler, 10);
    const beginFetched = async (count: number, runtime: string) => {
      await eventually(() => runs.length === count, `${count} fetched`);
      for (const one of runs) await one.begin();
      assert.equal(runs.at(-1)?.runtime, runtime);
    };
    await beginFetched(3, 'leaving');
    await start('staying', 2, 'on order', 20);
    const drained = leaving.worker.drain(60_000);
    await eventually(
      async () => (await scheduler.runtimes.list()).some(({ accepting }) => accepting === false),
      'the runtime stops accepting jobs',
    );
    const freeCapacity = async () => {
      const { slots, usedSlots, models } = await scheduler.admission.capacity();
      return [slots - usedSlots, ...models.map(({ pages, usedPages }) => pages - usedPages)];
    };
    assert.deepEqual(await freeCapacity(), [2, 20]);
    await submit(scheduler, 10);
    await submit(scheduler, 10);
    const last = await submit(scheduler, 10);
    await beginFetched(5, 'staying');
    assert.deepEqual(await freeCapacity(), [0, 0]);
    // An end on the leaving runtime (`runs[0]`) makes no room on the staying one; an end on the staying one (`runs[4]`) does.
    runs[0]?.finish();
    await succeeded(scheduler, runs[0]?.id ?? '');
    assert.deepEqual(await freeCapacity(), [0, 0]);
    assert.deepEqual(await scheduler.queue.waiting(), [last]);
    runs[4]?.finish();
    await beginFetched(6, 'staying');
    assert.equal(runs.at(-1)?.id, last);
    for (const { finish } of runs) finish();
    await drained;
    await leaving.lease.release();
    for (const { id } of runs) await succeeded(scheduler, id);
    assert.deepEqual(await freeCapacity(), [2, 20]);
    assert.deepEqual(await scheduler.admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
    await close();
  });
});
