import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { silentLog } from '#scheduler/testing/log.ts';
import { openScheduler } from '../scheduler.ts';
import { Channels } from '../store/channels.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type Envelope, MAX_QUEUE_BYTES, MAX_QUEUE_MESSAGES, MessageQueues } from './messaging.ts';

const envelope = (text: string): Envelope => ({ sender: 'me', message: { text } });
/** Bytes of an encoded envelope besides its text: the sender, a zero byte and the kind. */
const HEAD_BYTES = 'me'.length + 2;
const textOf = (found: Envelope | null) => (found && 'text' in found.message ? found.message.text : null);
const NEVER_ABORTED = new AbortController().signal;

describe('queues', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Opens the schedulers of processes that share a Redis. */
  function openProcesses(count: number) {
    const prefix = `queues-${randomUUID()}`;
    return Array.from({ length: count }, () => openScheduler({ log: silentLog, connect: redis.connect, prefix }));
  }

  test('each message reaches one puller even when pullers are aborted, and returned messages keep their order', async () => {
    const step = fc.oneof(
      { weight: 4, arbitrary: fc.record({ do: fc.constant('push' as const), by: fc.nat(2) }) },
      { weight: 4, arbitrary: fc.record({ do: fc.constant('pull' as const), by: fc.nat(2) }) },
      { weight: 2, arbitrary: fc.record({ do: fc.constant('abort' as const), which: fc.nat(20) }) },
      // Gives the calls so far time to end.
      { weight: 2, arbitrary: fc.record({ do: fc.constant('settle' as const) }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 60, size: 'max' }), async (steps) => {
        const schedulers = openProcesses(3);
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
          } else if (step.do === 'abort') {
            [...pullers][step.which % Math.max(1, pullers.size)]?.abort();
          } else {
            await schedulers[0]!.ping();
          }
        }
        for (const aborter of pullers) aborter.abort();
        await Promise.all(work);
        const { store } = schedulers[0]!;
        const queueLength = () => store.call((client) => client.zcard(store.keys.messageQueue('t', 'work')));
        await eventually(
          async () => (await queueLength()) === pushed - pulled.length,
          'messages of aborted pullers are back in the queue',
        );
        const rest = await pullSeveral(schedulers[0]!.messaging.queues, pushed - pulled.length);
        assert.deepEqual(
          rest.map(Number),
          rest.map(Number).toSorted((a, b) => a - b),
          'returned messages are back in their place',
        );
        assert.deepEqual(
          [...pulled, ...rest].map(Number).toSorted((a, b) => a - b),
          Array.from({ length: pushed }, (_, i) => i),
        );
        assert.equal(await queueLength(), 0);
        await Promise.all(schedulers.map((scheduler) => scheduler.close()));
      }),
      { seed: 20261108, numRuns: 25 },
    );
  });

  /** Pulls `count` messages, one after the other. */
  async function pullSeveral(queues: MessageQueues, count: number): Promise<string[]> {
    const found: string[] = [];
    for (let i = 0; i < count; i++) found.push(String(textOf(await queues.pull('t', 'work', NEVER_ABORTED))));
    return found;
  }

  test('one puller gets messages in order, and waiting pullers are served in order', async () => {
    const [one, two] = openProcesses(2) as [ReturnType<typeof openProcesses>[0], ReturnType<typeof openProcesses>[0]];
    const [a, b] = [one.messaging.queues, two.messaging.queues];
    for (let i = 0; i < 20; i++) await a.push('t', 'work', envelope(String(i)));
    assert.deepEqual(
      await pullSeveral(b, 20),
      Array.from({ length: 20 }, (_, i) => String(i)),
    );
    const waiting = Array.from({ length: 5 }, () => b.pull('t', 'work', NEVER_ABORTED).then(textOf));
    // By now every puller has found the queue empty.
    await two.ping();
    for (let i = 0; i < 5; i++) await a.push('t', 'work', envelope(`w${i}`));
    assert.deepEqual(await Promise.all(waiting), ['w0', 'w1', 'w2', 'w3', 'w4']);
    await a.push('t', 'work', envelope('mine'));
    const foreign = await b.pull('other', 'work', AbortSignal.timeout(20));
    assert.equal(foreign, null, 'the queue of the same name of another tenant has no message');
  });

  test('a push fails with `full` when a queue has its maximum of waiting bytes or messages', async () => {
    const [a] = openProcesses(1).map(({ messaging }) => messaging.queues) as [MessageQueues];
    const big = 'x'.repeat(2 ** 20 - 100);
    let fitted = 0;
    for (; (await a.push('t', 'big', envelope(big))).kind === 'ok'; fitted++);
    assert.equal(fitted, Math.floor(MAX_QUEUE_BYTES / (big.length + HEAD_BYTES)));
    await a.pull('t', 'big', NEVER_ABORTED);
    assert.equal((await a.push('t', 'big', envelope(big))).kind, 'ok');

    const outcomes: Awaited<ReturnType<MessageQueues['push']>>[] = [];
    // One message more than fits, in rounds: Redis answers the calls of one round before their deadline even on a loaded machine.
    const CALLS_AT_ONCE = 500;
    while (outcomes.length <= MAX_QUEUE_MESSAGES) {
      const length = Math.min(CALLS_AT_ONCE, MAX_QUEUE_MESSAGES + 1 - outcomes.length);
      outcomes.push(...(await Promise.all(Array.from({ length }, () => a.push('t', 'many', envelope(''))))));
    }
    assert.deepEqual(
      outcomes.filter(({ kind }) => kind === 'full'),
      [{ kind: 'full', messages: MAX_QUEUE_MESSAGES, bytes: MAX_QUEUE_MESSAGES * HEAD_BYTES }],
    );
  });

  test('the queues of a tenant share one bound: pulls and expired queues free bytes, and returned messages take bytes again', async () => {
    const [scheduler] = openProcesses(1) as [ReturnType<typeof openProcesses>[0]];
    const { redis: client, keys } = scheduler.store;
    const channels = new Channels(redis.connect());
    const [messageBytes, perMessage, perQueue] = [1000, 64, 512];
    const big = envelope('x'.repeat(messageBytes - HEAD_BYTES));
    const totalBytes = 3 * (messageBytes + perMessage + perQueue);
    const queues = new MessageQueues(scheduler.store, channels, totalBytes);
    const push = async (name: string) => (await queues.push('t', name, big)).kind;
    const used = async () => Number(await client.hget(keys.messageQueuesUsage('t'), 'bytes'));
    try {
      assert.deepEqual([await push('a'), await push('b'), await push('c')], ['ok', 'ok', 'ok']);
      assert.equal(await used(), totalBytes);
      assert.deepEqual(await queues.push('t', 'd', big), { kind: 'tenant-full', bytes: totalBytes });
      assert.equal((await queues.push('other', 'd', big)).kind, 'ok');
      await queues.pull('t', 'a', NEVER_ABORTED);
      assert.equal(await push('d'), 'tenant-full', 'an empty queue still takes bytes');
      assert.equal(await push('a'), 'ok');

      const aborter = new AbortController();
      const abandoned = queues.pull('t', 'b', aborter.signal);
      aborter.abort();
      assert.equal(await abandoned, null);
      await eventually(async () => (await client.zcard(keys.messageQueue('t', 'b'))) === 1, 'the message is back');
      assert.equal(await used(), totalBytes);

      // Make the queue expire, as after a day without use.
      await client.del(keys.messageQueue('t', 'c'), keys.messageQueueState('t', 'c'));
      await client.zadd(keys.messageQueuesExpiries('t'), 1, keys.messageQueue('t', 'c'));
      assert.equal(await push('e'), 'ok');
      assert.equal(await used(), totalBytes);
      assert.equal(await push('c'), 'tenant-full');
    } finally {
      channels.close();
      await scheduler.close();
    }
  });

  test('a message whose puller was aborted goes back to its place before later messages', async () => {
    const [one, two] = openProcesses(2) as [ReturnType<typeof openProcesses>[0], ReturnType<typeof openProcesses>[0]];
    for (const text of ['first', 'second']) await one.messaging.queues.push('t', 'work', envelope(text));
    const aborter = new AbortController();
    const abandoned = one.messaging.queues.pull('t', 'work', aborter.signal);
    aborter.abort();
    assert.equal(await abandoned, null);
    await eventually(async () => {
      const { keys } = one.store;
      return (await one.store.call((client) => client.zcard(keys.messageQueue('t', 'work')))) === 2;
    }, 'the messages are back');
    assert.deepEqual(await pullSeveral(two.messaging.queues, 2), ['first', 'second']);
  });
});

describe('queues across a restart of Redis', () => {
  test('a waiting pull and a message survive a restart of Redis', async () => {
    const redis = await TestRedis.start({ appendOnly: true });
    const scheduler = openScheduler({ log: silentLog, connect: redis.connect });
    const { queues } = scheduler.messaging;
    try {
      await scheduler.store.call((client) => client.config('SET', 'appendfsync', 'always'));
      await queues.push('t', 'kept', envelope('kept'));
      const waiting = queues.pull('t', 'empty', NEVER_ABORTED).then(textOf);
      await redis.restart();
      await scheduler.ping();
      await queues.push('t', 'empty', envelope('late'));
      assert.equal(await waiting, 'late');
      assert.equal(textOf(await queues.pull('t', 'kept', NEVER_ABORTED)), 'kept');
    } finally {
      await scheduler.close();
      await redis.stop();
    }
  });
});
