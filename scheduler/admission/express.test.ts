import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { RuntimeLease } from '../runtimes/lease.ts';
import type { Scheduler } from '../scheduler.ts';
import { eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { AdmissionWorker } from './worker.ts';

/** Of 64 slots a quarter is kept, half of that counts as few, and an eighth of that may take the express lane: one of each tenant's. */
const SLOTS = 64;
const RESERVE = 0.25;

interface Member {
  readonly worker: AdmissionWorker;
  readonly lease: RuntimeLease;
  /** What it began, in order; each ends when it is told so. */
  readonly began: string[];
  readonly open: Map<string, () => void>;
}

describe('the express lane', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  async function join(scheduler: Scheduler, slots: number, lane?: 'express'): Promise<Member> {
    const began: string[] = [];
    const open = new Map<string, () => void>();
    const lease = await scheduler.runtimes.acquire({ name: lane ?? 'ordinary', slots, reserve: RESERVE });
    const worker = scheduler.createWorker({
      lease,
      slots,
      ...(lane && { lane }),
      run: async ({ id }, signal) => {
        const attempt = await scheduler.invocations.beginAttempt(id, lease.id);
        if ('refused' in attempt) return;
        began.push(id);
        await new Promise<void>((resolve) => {
          open.set(id, resolve);
          signal.addEventListener('abort', () => resolve());
        });
        open.delete(id);
        await scheduler.invocations.finish(id, attempt.epoch, attempt.nextSeq, { event: 'result', data: '{}' }, null);
      },
    });
    await worker.start();
    return { worker, lease, began, open };
  }

  async function withRuntimes(
    express: number,
    body: (scheduler: Scheduler, ordinary: Member, fast: Member) => Promise<void>,
  ): Promise<void> {
    const scheduler = openTestScheduler(redis);
    const members = [await join(scheduler, SLOTS), await join(scheduler, express, 'express')] as const;
    try {
      await body(scheduler, ...members);
    } finally {
      for (const { worker, lease } of members) {
        await worker.drain(0);
        await lease.release();
      }
      await scheduler.close();
    }
  }

  const submit = async (scheduler: Scheduler, tenant: string) => (await scheduler.submit(submission({ tenant }))).id;

  test('takes each tenant’s first and nothing of a flood; who left makes room for the next', async () => {
    await withRuntimes(4, async (scheduler, ordinary, fast) => {
      const flood: string[] = [];
      for (let i = 0; i < 20; i += 1) flood.push(await submit(scheduler, 'flood'));
      await eventually(() => ordinary.began.length === 19, 'all but the first run among the others');
      const [one, two] = [await submit(scheduler, 'one'), await submit(scheduler, 'two')];
      await eventually(() => fast.began.length === 3, 'newcomers run there');
      assert.deepEqual(fast.began, [flood[0], one, two]);
      assert.deepEqual(ordinary.began, flood.slice(1));
      fast.open.get(one)?.();
      await eventually(() => !fast.open.has(one), 'it has ended');
      const again = await submit(scheduler, 'one');
      const besides = await submit(scheduler, 'one');
      await eventually(() => ordinary.began.includes(besides), 'all run');
      assert.deepEqual(fast.began, [flood[0], one, two, again]);
      assert.equal((await scheduler.admission.capacity()).slots, SLOTS, 'it adds no room');
    });
  });

  test('when it is full, tenants’ first run among the others', async () => {
    await withRuntimes(1, async (scheduler, ordinary, fast) => {
      const [one, two] = [await submit(scheduler, 'one'), await submit(scheduler, 'two')];
      await eventually(() => fast.began.length + ordinary.began.length === 2, 'both run');
      assert.deepEqual([fast.began, ordinary.began], [[one], [two]]);
    });
  });

  test('who stands in it when nobody fetches there any more is fetched by the others, first', async () => {
    await withRuntimes(8, async (scheduler, ordinary, fast) => {
      const lane = `${scheduler.store.keys.jobs}:express`;
      // It lives, and fetches nothing more.
      await fast.worker.drain(0);
      await fast.lease.describe({ accepting: true });
      const stranded = [
        await submit(scheduler, 'one'),
        await submit(scheduler, 'two'),
        await submit(scheduler, 'three'),
      ];
      assert.deepEqual((await scheduler.store.redis.lrange(lane, 0, -1)).reverse(), stranded);
      assert.equal((await scheduler.queue.depth()).waiting, 3);
      assert.deepEqual(await scheduler.queue.waiting(), stranded);
      await fast.lease.describe({ accepting: false });
      await eventually(() => ordinary.began.length === 3, 'all run');
      assert.deepEqual(ordinary.began, stranded);
      assert.equal(await scheduler.store.redis.exists(lane), 0);
      assert.deepEqual(await scheduler.admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
    });
  });

  test('one that is withdrawn leaves the lane, and what Redis has lost of it is found', async () => {
    await withRuntimes(8, async (scheduler, ordinary, fast) => {
      const { keys, redis: client } = scheduler.store;
      await fast.worker.drain(0);
      await fast.lease.describe({ accepting: true });
      const [withdrawn, lost] = [await submit(scheduler, 'one'), await submit(scheduler, 'two')];
      await scheduler.cancel(withdrawn, 'not wanted');
      assert.deepEqual(await client.lrange(`${keys.jobs}:express`, 0, -1), [lost]);
      // As after a kill of Redis: the entry is there, the list is not.
      await client.del(`${keys.jobs}:express`);
      await client.hset(`${keys.admission}:state`, 'express', 7);
      await fast.lease.describe({ accepting: false });
      const repairs = await scheduler.admission.repair(0);
      assert.deepEqual(repairs, { dropped: 0, returned: 1, sums: 1, lost: [] });
      await eventually(() => ordinary.began.includes(lost), 'it runs');
      assert.equal(await client.hget(`${keys.admission}:state`, 'express'), '0');
    });
  });
});
