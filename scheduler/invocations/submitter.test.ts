import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, collect, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

describe('followers of invocations that this process submits', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());
  beforeEach(async () => {
    scheduler = openTestScheduler(redis);
    const { submitter, store } = scheduler;
    await eventually(() => submitter.expect('probe'), 'the channel opens');
    let isOpen = false;
    const stop = submitter.claim('probe')?.({ message: () => (isOpen = true), resumed: () => undefined });
    await eventually(async () => {
      await store.redis.publish(submitter.name, 'probe\0');
      return isOpen;
    }, 'the channel is open');
    stop?.();
  });
  afterEach(() => scheduler.close());

  const message = (text: string) => ({ event: 'message', data: JSON.stringify({ text }) }) as const;

  async function submit() {
    const { submitter } = scheduler;
    const own = submission({ submitter: submitter.name, restartable: true });
    assert.ok(submitter.expect(own.id));
    await scheduler.submit(own);
    return own.id;
  }

  /** Two attempts, the first of which is given up, and an end. */
  async function live(id: string, between: () => Promise<void> = async () => undefined) {
    const { invocations } = scheduler;
    const first = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in first);
    await invocations.append(id, first.epoch, 1, [message('one'), message('two')]);
    assert.equal(await invocations.requeue(id, first.epoch, 3, 'Room for others.', null), 'requeued');
    await between();
    const second = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in second);
    await invocations.append(id, second.epoch, 4, [message('three')]);
    await invocations.finish(id, second.epoch, 5, { event: 'result', data: '{}' }, null);
  }

  it('get every event without a subscription of their own or a read, also those before they follow', async () => {
    const { store, events } = scheduler;
    const id = await submit();
    let reads = 0;
    const { script } = store;
    store.script = (which, ...rest) => {
      if (which.name === 'read-events') reads += 1;
      return script.call(store, which, ...rest);
    };
    let followed: ReturnType<typeof collect> | undefined;
    await live(id, async () => {
      followed = collect(events.follow(id, 0));
      assert.deepEqual(await store.redis.pubsub('NUMSUB', store.keys.live(id)), [store.keys.live(id), 0]);
    });
    assert.deepEqual(await followed, await events.read(id, 0));
    assert.equal(reads, 0);
    // Its events are no longer kept for a follower.
    assert.deepEqual(await collect(events.follow(id, 0)), await events.read(id, 0));
    assert.equal(reads, 1);
  });

  it('get every event once although the connection breaks before they follow or while they do', async () => {
    const { store, events } = scheduler;
    const cut = () => store.redis.client('KILL', 'TYPE', 'PUBSUB');
    for (const when of ['before', 'while']) {
      const id = await submit();
      if (when === 'before') await cut();
      const followed = collect(events.follow(id, 0));
      await live(id, async () => {
        if (when === 'while') await cut();
      });
      assert.deepEqual(await followed, await events.read(id, 0), when);
    }
  });
});
