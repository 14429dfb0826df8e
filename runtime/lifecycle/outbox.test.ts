import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { Outbox, type OutboxEnd } from './outbox.ts';

describe('an outbox', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = openScheduler({ connect: redis.connect, deadlineMs: 300, retention: { maxBytes: 20_000 } });
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  async function attempt() {
    const id = randomUUID();
    const identity = { id, tenant: 'default', function: 'f', version: 'v' };
    await scheduler.invocations.create({
      ...identity,
      submittedAt: Date.now(),
      deadlineMs: 60_000,
      restartable: false,
    });
    const begun = await scheduler.invocations.beginAttempt(id, 'runtime');
    assert.ok('epoch' in begun);
    const ends: OutboxEnd[] = [];
    let calls = 0;
    const outbox = new Outbox(
      begun.nextSeq,
      (seq, events) => {
        calls++;
        return scheduler.invocations.append(id, begun.epoch, seq, events);
      },
      (end) => ends.push(end),
    );
    return { id, outbox, ends, calls: () => calls };
  }

  const dataOf = async (id: string) => (await scheduler.events.read(id, 0)).map(({ data }) => data);

  it('writes the events of one turn in one call, in order', async () => {
    const { id, outbox, calls } = await attempt();
    for (let i = 0; i < 50; i++) outbox.add('message', String(i));
    assert.equal(await outbox.flushed(), true);
    assert.equal(calls(), 1);
    assert.deepEqual(
      await dataOf(id),
      Array.from({ length: 50 }, (_, i) => String(i)),
    );
    assert.equal(outbox.pendingBytes, 0);
    assert.equal(outbox.nextSeq, 51);
  });

  it('keeps what comes while a call is under way for the next', async () => {
    const { id, outbox } = await attempt();
    for (let i = 0; i < 20; i++) {
      outbox.add('message', `${i}`);
      if (i % 3 === 0) await turn();
    }
    assert.equal(await outbox.flushed(), true);
    assert.deepEqual(
      await dataOf(id),
      Array.from({ length: 20 }, (_, i) => String(i)),
    );
  });

  it('writes what comes at any moment around the end of a call, though nothing follows', async () => {
    // An inferlet that answers its client adds in a microtask of its own, as close to the end of a write as it can be.
    for (let microtasks = 0; microtasks < 20; microtasks++) {
      const written: string[] = [];
      const called = Promise.withResolvers<void>();
      const answer = Promise.withResolvers<'ok'>();
      const outbox = new Outbox(
        1,
        (_seq, events) => {
          for (const { data } of events) written.push(data);
          called.resolve();
          return answer.promise;
        },
        () => assert.fail('it ended'),
      );
      outbox.add('message', 'question');
      await called.promise;
      answer.resolve('ok');
      for (let i = 0; i < microtasks; i++) await null;
      outbox.add('message', 'answer');
      for (let turns = 0; turns < 5; turns++) await turn();
      assert.deepEqual(written, ['question', 'answer'], `after ${microtasks} microtasks`);
      assert.equal(outbox.pendingBytes, 0);
    }
  });

  it('loses nothing and writes nothing twice when Redis dies in between', async () => {
    const { id, outbox } = await attempt();
    outbox.add('message', 'before');
    await outbox.flushed();
    await scheduler.store.call((client) => client.call('WAITAOF', '1', '0', '0')).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 1100));
    await redis.kill();
    outbox.add('message', 'during');
    const flushed = outbox.flushed();
    await redis.restart();
    outbox.add('message', 'after');
    assert.equal(await flushed, true);
    await outbox.flushed();
    assert.deepEqual(await dataOf(id), ['before', 'during', 'after']);
  });

  it('ends when another attempt owns the invocation', async () => {
    const { id, outbox, ends } = await attempt();
    await scheduler.invocations.fail(id, 'runtime-lost', 'taken over');
    outbox.add('message', 'too late');
    assert.equal(await outbox.flushed(), false);
    assert.deepEqual(ends, ['lost']);
    outbox.add('message', 'still');
    assert.equal(outbox.pendingBytes, 0);
  });

  it('ends when the log is full', async () => {
    const { outbox, ends } = await attempt();
    outbox.add('message', 'x'.repeat(30_000));
    assert.equal(await outbox.flushed(), false);
    assert.deepEqual(ends, ['full']);
  });
});
