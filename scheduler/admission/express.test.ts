import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RuntimeLease } from '../runtimes/lease.ts';
import type { Scheduler } from '../scheduler.ts';
import { eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { LANE_MS } from './policy.ts';
import type { AdmissionWorker } from './worker.ts';

/** Of 64 slots a quarter is kept, half of that counts as few, and an eighth of that may take the express lane: one of each tenant's. */
const SLOTS = 64;
const RESERVE = 0.25;

interface Member {
  readonly worker: AdmissionWorker;
  readonly lease: RuntimeLease;
  /** What it was given, in order. */
  readonly began: string[];
  /** What runs, each until it is told to end. Who is given first need not run first: beginning takes a script. */
  readonly open: Map<string, () => void>;
}

describe('the express lane', () => {
  let redis: TestRedis;
  /** Stands still: who is in the express lane stays there until a test lets time pass. */
  let now = Date.now();
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  async function join(scheduler: Scheduler, slots: number, lane?: 'express'): Promise<Member> {
    const began: string[] = [];
    const open = new Map<string, () => void>();
    const lease = await scheduler.runtimes.acquire({
      ...{ name: lane ?? 'ordinary', slots, reserve: RESERVE },
      ...(lane && { lane }),
    });
    const worker = scheduler.createWorker({
      lease,
      slots,
      run: async ({ id }, signal) => {
        began.push(id);
        const attempt = await scheduler.invocations.beginAttempt(id, lease.id);
        assert.ok(!('refused' in attempt), `${id} may not begin`);
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
    const scheduler = openTestScheduler(redis, { clock: () => now });
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
      await eventually(() => fast.open.has(one), 'it runs');
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

  test('one that is not fetched from holds nobody up: few stand in it, the others begin elsewhere, and soon they do too', async () => {
    await withRuntimes(64, async (scheduler, ordinary, fast) => {
      await fast.worker.drain(0);
      await fast.lease.describe({ accepting: true });
      const all: string[] = [];
      for (let i = 0; i < 20; i += 1) all.push(await submit(scheduler, `t${i}`));
      await eventually(() => ordinary.began.length === 12, 'all but eight have begun');
      assert.deepEqual(ordinary.began, all.slice(8));
      now += LANE_MS + 1;
      // As every round of the reaper does.
      await scheduler.admission.admit();
      await eventually(() => ordinary.began.length === 20, 'these eight as well');
      assert.deepEqual(ordinary.began.slice(12), all.slice(0, 8));
      assert.deepEqual(await scheduler.admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
    });
  });

  test('who comes to it wakes its runtime', async () => {
    await withRuntimes(16, async (scheduler, _ordinary, fast) => {
      const times: number[] = [];
      for (let i = 0; i < 5; i += 1) {
        await sleep(20);
        const startedMs = performance.now();
        await submit(scheduler, `t${i}`);
        await eventually(() => fast.began.length > i, 'it runs');
        times.push(performance.now() - startedMs);
      }
      // Without a marker it would be noticed when the blocking fetch ends, after two seconds.
      assert.ok(Math.min(...times) < 1000, `${times}`);
    });
  });

  test('what runs there is no part of what the ordinary runtime’s thread keeps up with', async () => {
    await withRuntimes(16, async (scheduler, ordinary, fast) => {
      await ordinary.lease.describe({ pace: 20 });
      for (let i = 0; i < 16; i += 1) await submit(scheduler, `t${i}`);
      await eventually(() => fast.began.length === 16, 'newcomers run there');
      for (let i = 0; i < 40; i += 1) await submit(scheduler, 'flood');
      await eventually(() => ordinary.began.length === 20, 'as many as its pace');
      await sleep(50);
      assert.equal(ordinary.began.length, 20);
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
