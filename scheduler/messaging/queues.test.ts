import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { openScheduler } from '../scheduler.ts';
import { Channels } from '../store/channels.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { Envelope } from './message.ts';
import { MAX_QUEUE_BYTES, MAX_QUEUE_MESSAGES, MessageQueues } from './queues.ts';

const envelope = (text: string): Envelope => ({ sender: 'me', message: { text } });
const textOf = (found: Envelope | null) => (found && 'text' in found.message ? found.message.text : null);
const NEVER = new AbortController().signal;

describe('queues', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Processes that share a Redis. */
  function processes(count: number) {
    const prefix = `queues-${randomUUID()}`;
    return Array.from({ length: count }, () => openScheduler({ connect: redis.connect, prefix }));
  }

  test('each message goes to exactly one puller, whoever dies; what is pulled one after the other is in order', async () => {
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.record({ do: fc.constant('push' as const), by: fc.nat(2) }) },
      { weight: 4, arbitrary: fc.record({ do: fc.constant('pull' as const), by: fc.nat(2) }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('die' as const), which: fc.nat(20) }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('settle' as const) }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 60 }), async (steps) => {
        const schedulers = processes(3);
        const pullers = new Set<AbortController>();
        const pulled: string[] = [];
        const work: Promise<unknown>[] = [];
        let pushed = 0;
        for (const step of steps) {
          if (step.do === 'push') {
            const { queues } = schedulers[step.by]!.messaging;
            await queues.push('t', 'work', envelope(String(pushed++)));
          } else if (step.do === 'pull') {
            const aborter = new AbortController();
            pullers.add(aborter);
            const { queues } = schedulers[step.by]!.messaging;
            const pulling = queues.pull('t', 'work', aborter.signal).then((found) => {
              pullers.delete(aborter);
              const text = textOf(found);
              if (text !== null) pulled.push(text);
            });
            work.push(pulling);
          } else if (step.do === 'die') {
            [...pullers][step.which % Math.max(1, pullers.size)]?.abort();
          } else {
            await schedulers[0]!.ping();
          }
        }
        for (const aborter of pullers) aborter.abort();
        await Promise.all(work);
        const { store } = schedulers[0]!;
        const left = () => store.call((client) => client.zcard(store.keys.messageQueue('t', 'work')));
        await eventually(
          async () => (await left()) === pushed - pulled.length,
          'what was on its way to those who died is back',
        );
        const rest = await drained(schedulers[0]!.messaging.queues, pushed - pulled.length);
        assert.deepEqual(
          rest.map(Number),
          rest.map(Number).toSorted((a, b) => a - b),
          'what was put back is in its place',
        );
        assert.deepEqual(
          [...pulled, ...rest].map(Number).toSorted((a, b) => a - b),
          Array.from({ length: pushed }, (_, i) => i),
        );
        assert.equal(await left(), 0);
        await Promise.all(schedulers.map((scheduler) => scheduler.close()));
      }),
      { seed: 20261108, numRuns: 25 },
    );
  });

  /** Pulls `count` messages, one after the other. */
  async function drained(queues: MessageQueues, count: number): Promise<string[]> {
    const found: string[] = [];
    for (let i = 0; i < count; i++) found.push(String(textOf(await queues.pull('t', 'work', NEVER))));
    return found;
  }

  test('one puller gets messages in order, and those who wait are served in order and at once', async () => {
    const [one, two] = processes(2) as [ReturnType<typeof processes>[0], ReturnType<typeof processes>[0]];
    const [a, b] = [one.messaging.queues, two.messaging.queues];
    for (let i = 0; i < 20; i++) await a.push('t', 'work', envelope(String(i)));
    assert.deepEqual(
      await drained(b, 20),
      Array.from({ length: 20 }, (_, i) => String(i)),
    );
    const waiting = Array.from({ length: 5 }, () => b.pull('t', 'work', NEVER).then(textOf));
    // By now every puller has found the queue empty.
    await two.ping();
    for (let i = 0; i < 5; i++) await a.push('t', 'work', envelope(`w${i}`));
    assert.deepEqual(await Promise.all(waiting), ['w0', 'w1', 'w2', 'w3', 'w4']);
    assert.equal(textOf(await Promise.race([b.pull('other', 'work', AbortSignal.timeout(20)), null])), null);
  });

  test('a queue has bounds, which count what waits', async () => {
    const [a] = processes(1).map(({ messaging }) => messaging.queues) as [MessageQueues];
    const big = 'x'.repeat(2 ** 20 - 100);
    let fitted = 0;
    for (; (await a.push('t', 'big', envelope(big))).kind === 'ok'; fitted++);
    assert.equal(fitted, Math.floor(MAX_QUEUE_BYTES / (big.length + 4)));
    await a.pull('t', 'big', NEVER);
    assert.equal((await a.push('t', 'big', envelope(big))).kind, 'ok');

    const outcomes = await Promise.all(
      Array.from({ length: MAX_QUEUE_MESSAGES + 1 }, () => a.push('t', 'many', envelope(''))),
    );
    assert.deepEqual(
      outcomes.filter(({ kind }) => kind === 'full'),
      [{ kind: 'full', messages: MAX_QUEUE_MESSAGES, bytes: MAX_QUEUE_MESSAGES * 4 }],
    );
  });

  test('all queues of a tenant have one bound: what is pulled makes room, what is put back takes it, what is forgotten gives it back', async () => {
    const [scheduler] = processes(1) as [ReturnType<typeof processes>[0]];
    const { redis: client, keys } = scheduler.store;
    const channels = new Channels(redis.connect());
    const [message, perMessage, perQueue] = [1000, 64, 512];
    const big = envelope('x'.repeat(message - 4));
    const room = 3 * (message + perMessage + perQueue);
    const queues = new MessageQueues(scheduler.store, channels, room);
    const push = async (name: string) => (await queues.push('t', name, big)).kind;
    const used = async () => Number(await client.hget(keys.messageQueuesUsage('t'), 'bytes'));
    try {
      assert.deepEqual([await push('a'), await push('b'), await push('c')], ['ok', 'ok', 'ok']);
      assert.equal(await used(), room);
      assert.deepEqual(await queues.push('t', 'd', big), { kind: 'tenant-full', bytes: room });
      assert.equal((await queues.push('other', 'd', big)).kind, 'ok');
      await queues.pull('t', 'a', NEVER);
      assert.equal(await push('d'), 'tenant-full', 'an empty queue is one all the same');
      assert.equal(await push('a'), 'ok');

      const aborter = new AbortController();
      const abandoned = queues.pull('t', 'b', aborter.signal);
      aborter.abort();
      assert.equal(await abandoned, null);
      await eventually(async () => (await client.zcard(keys.messageQueue('t', 'b'))) === 1, 'it is back');
      assert.equal(await used(), room);

      // As after a day without use.
      await client.del(keys.messageQueue('t', 'c'), keys.messageQueueState('t', 'c'));
      await client.zadd(keys.messageQueuesExpiries('t'), 1, keys.messageQueue('t', 'c'));
      assert.equal(await push('e'), 'ok');
      assert.equal(await used(), room);
      assert.equal(await push('c'), 'tenant-full');
    } finally {
      channels.close();
      await scheduler.close();
    }
  });

  test('a message whose puller ended while it was on its way goes back before those behind it', async () => {
    const [one, two] = processes(2) as [ReturnType<typeof processes>[0], ReturnType<typeof processes>[0]];
    for (const text of ['first', 'second']) await one.messaging.queues.push('t', 'work', envelope(text));
    const aborter = new AbortController();
    const abandoned = one.messaging.queues.pull('t', 'work', aborter.signal);
    aborter.abort();
    assert.equal(await abandoned, null);
    await eventually(async () => {
      const { keys } = one.store;
      return (await one.store.call((client) => client.zcard(keys.messageQueue('t', 'work')))) === 2;
    }, 'it is back');
    assert.deepEqual(await drained(two.messaging.queues, 2), ['first', 'second']);
  });
});

describe('queues of a Redis that goes away', () => {
  test('waits outlive it, and a message that was pushed before it is there after', async () => {
    const redis = await TestRedis.start({ appendOnly: true });
    const scheduler = openScheduler({ connect: redis.connect });
    const { queues } = scheduler.messaging;
    try {
      await scheduler.store.call((client) => client.config('SET', 'appendfsync', 'always'));
      await queues.push('t', 'kept', envelope('kept'));
      const waiting = queues.pull('t', 'empty', NEVER).then(textOf);
      await redis.restart();
      await scheduler.ping();
      await queues.push('t', 'empty', envelope('late'));
      assert.equal(await waiting, 'late');
      assert.equal(textOf(await queues.pull('t', 'kept', NEVER)), 'kept');
    } finally {
      await scheduler.close();
      await redis.stop();
    }
  });
});
