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
    await eventually(() => submitter.expect('probe'), 'the submitter has subscribed to its channel');
    let isOpen = false;
    const stop = submitter.claim('probe')?.({ message: () => (isOpen = true), resumed: () => undefined });
    await eventually(async () => {
      await store.redis.publish(submitter.name, 'probe\0');
      return isOpen;
    }, 'a message arrives on the channel');
    stop?.();
  });
  afterEach(() => scheduler.close());

  const message = (text: string) => ({ event: 'message', data: JSON.stringify({ text }) }) as const;

  async function submit() {
    const { submitter } = scheduler;
    const record = submission({ submitter: submitter.name, restartable: true });
    assert.ok(submitter.expect(record.id));
    await scheduler.submit(record);
    return record.id;
  }

  /** Counts the reads of logs from now on. */
  function countReads() {
    const { store } = scheduler;
    const { script } = store;
    let reads = 0;
    store.script = (which, ...rest) => {
      if (which.name === 'read-events') reads += 1;
      return script.call(store, which, ...rest);
    };
    return () => reads;
  }

  /** Runs an invocation to its end: a first attempt that is requeued, then `between`, then a second attempt. */
  async function runTwoAttempts(id: string, between: () => Promise<void> = async () => undefined) {
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

  it('a follower gets every event, also earlier ones, without a subscription of its own or a read of the log', async () => {
    const { store, events, submitter } = scheduler;
    const id = await submit();
    const reads = countReads();
    let followed: ReturnType<typeof collect> | undefined;
    await runTwoAttempts(id, async () => {
      followed = collect(events.follow(id, 0));
      await eventually(() => submitter.expected === 0, 'the follower listens');
      assert.deepEqual(await store.redis.pubsub('NUMSUB', store.keys.live(id)), [store.keys.live(id), 0]);
    });
    assert.deepEqual(await followed, await events.read(id, 0));
    assert.equal(reads(), 0);
    // Only the first follower gets the kept events; the second one reads the log.
    assert.deepEqual(await collect(events.follow(id, 0)), await events.read(id, 0));
    assert.equal(reads(), 1);
  });

  it('the submitter forgets an invocation whose follower closes before it listens', async () => {
    const { submitter, events } = scheduler;
    const id = await submit();
    const feed = events.feed(id, { epoch: null, seq: 0 })(() => undefined);
    assert.equal(submitter.expected, 1);
    feed.close();
    assert.equal(submitter.expected, 0);
  });

  it('a follower that comes after more events than the submitter keeps reads them from the log', async () => {
    const { store, events, invocations, submitter } = scheduler;
    const id = await submit();
    const attempt = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in attempt);
    await invocations.append(id, attempt.epoch, 1, [message('x'.repeat(5000))]);
    await invocations.finish(id, attempt.epoch, 2, { event: 'result', data: '{}' }, null);
    // The messages of a channel come in order, so this one shows that those of the events have come.
    let isHeard = false;
    assert.ok(submitter.expect('last'));
    submitter.claim('last')?.({ message: () => (isHeard = true), resumed: () => undefined });
    await store.redis.publish(submitter.name, 'last\0');
    await eventually(() => isHeard, 'the messages have come');
    const reads = countReads();
    const followed = await collect(events.follow(id, 0));
    assert.ok(reads() > 0);
    assert.deepEqual(followed, await events.read(id, 0));
  });

  it('a follower gets every event once although the connection breaks before or while it follows', async () => {
    const { store, events } = scheduler;
    const breakConnections = () => store.redis.client('KILL', 'TYPE', 'PUBSUB');
    for (const when of ['before', 'while']) {
      const id = await submit();
      if (when === 'before') await breakConnections();
      const followed = collect(events.follow(id, 0));
      await runTwoAttempts(id, async () => {
        if (when === 'while') await breakConnections();
      });
      assert.deepEqual(await followed, await events.read(id, 0), when);
    }
  });
});
