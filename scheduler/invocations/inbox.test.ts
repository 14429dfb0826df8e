import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { durably, losingWrites } from '../store/testing/lost-writes.ts';
import { beginAttempt, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type InboxMessage, MAX_INBOX_MESSAGES, MAX_MESSAGE_BYTES } from './inbox.ts';

function text(message: InboxMessage): string {
  return 'text' in message ? message.text : `bytes ${[...message.bytes]}`;
}

describe('inbox', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let runtime: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = openTestScheduler(redis);
    runtime = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix });
  });
  after(async () => {
    await scheduler.close();
    await runtime.close();
    await redis.stop();
  });

  async function beginOne(): Promise<string> {
    const record = submission();
    await scheduler.invocations.create(record);
    await beginAttempt(scheduler, record.id, 'r1');
    return record.id;
  }

  test('text and byte messages arrive in order, also those sent before a listener attaches', async () => {
    const id = await beginOne();
    const got: string[] = [];
    const closed = Promise.withResolvers<void>();
    assert.equal(await scheduler.inbox.push(id, { text: 'früh' }), 'ok');
    runtime.inbox.attach(id, { message: (message) => void got.push(text(message)), closed: closed.resolve });
    for (let i = 0; i < 100; i += 1) assert.equal(await scheduler.inbox.push(id, { text: `${i}` }), 'ok');
    assert.equal(await scheduler.inbox.push(id, { bytes: new Uint8Array([0, 255, 10]) }), 'ok');
    await scheduler.inbox.close(id);
    assert.equal(await scheduler.inbox.push(id, { text: 'late' }), 'closed');
    await closed.promise;
    assert.deepEqual(got, ['früh', ...Array.from({ length: 100 }, (_, i) => `${i}`), 'bytes 0,255,10']);
  });

  test('two messages that the connection sends twice are stored once each', async (t) => {
    const id = await beginOne();
    const { store, inbox } = scheduler;
    const script = store.script.bind(store);
    const calls: Parameters<typeof script>[] = [];
    t.mock.method(store, 'script', (...call: Parameters<typeof script>) => {
      calls.push(call);
      return script(...call);
    });
    for (const name of ['a', 'b']) assert.equal(await inbox.push(id, { text: name }), 'ok');
    for (const call of calls) assert.equal(await script(...call), 1);
    assert.equal(await store.redis.llen(store.keys.inbox(id)), 2);
  });

  test('an inbox is bounded in messages and bytes, and handled messages make room', async () => {
    const id = await beginOne();
    for (let i = 0; i < MAX_INBOX_MESSAGES; i += 1) await scheduler.inbox.push(id, { text: `${i}` });
    assert.equal(await scheduler.inbox.push(id, { text: 'too many' }), 'full');
    assert.equal(await scheduler.inbox.push(id, { bytes: new Uint8Array(MAX_MESSAGE_BYTES + 1) }), 'too-large');
    let count = 0;
    const countOne = () => {
      count += 1;
    };
    const detach = runtime.inbox.attach(id, { message: countOne, closed: () => undefined });
    await eventually(() => count === MAX_INBOX_MESSAGES, 'all handled');
    await eventually(async () => (await scheduler.inbox.push(id, { text: 'again' })) === 'ok', 'room again');
    detach();

    const big = await beginOne();
    const megabyte = new Uint8Array(MAX_MESSAGE_BYTES);
    const outcomes = [];
    for (let i = 0; i < 9; i += 1) outcomes.push(await scheduler.inbox.push(big, { bytes: megabyte }));
    // The inbox holds 8 MiB, and a token and a kind make each message a little longer than 1 MiB.
    assert.equal(outcomes.filter((outcome) => outcome === 'ok').length, 7);
    assert.equal(outcomes.at(-1), 'full');
  });

  test('a slow handler delays the next message, and a new handler continues at the first unhandled one', async () => {
    const id = await beginOne();
    for (let i = 0; i < 5; i += 1) await scheduler.inbox.push(id, { text: `${i}` });
    const got: string[] = [];
    const handling = Promise.withResolvers<void>();
    const detach = runtime.inbox.attach(id, {
      message: (message) => {
        got.push(text(message));
        if (got.length === 3) return handling.promise;
      },
      closed: () => undefined,
    });
    await eventually(() => got.length === 3, 'three messages');
    detach();
    handling.resolve();
    const gotBySecond: string[] = [];
    const closed = Promise.withResolvers<void>();
    await scheduler.inbox.close(id);
    runtime.inbox.attach(id, { message: (message) => void gotBySecond.push(text(message)), closed: closed.resolve });
    await closed.promise;
    // The second handler gets the messages that the first had not reported as handled: at least 3 and 4, which the first never got.
    assert.deepEqual(gotBySecond, ['0', '1', '2', '3', '4'].slice(-gotBySecond.length));
    assert.ok(gotBySecond.length >= 2);
  });

  test('messages survive a restart of Redis, and the listener continues', async () => {
    const got: string[] = [];
    const closed = Promise.withResolvers<void>();
    // `restart` waits only a limited time until Redis has written to its disk; `durably` waits for it in any case.
    const id = await durably(redis, async () => {
      const id = await beginOne();
      runtime.inbox.attach(id, { message: (message) => void got.push(text(message)), closed: closed.resolve });
      await scheduler.inbox.push(id, { text: 'before' });
      await eventually(() => got.length === 1, 'the first message');
      return id;
    });
    await redis.restart();
    await scheduler.inbox.push(id, { text: 'after' });
    await scheduler.inbox.close(id);
    await closed.promise;
    assert.deepEqual(got, ['before', 'after']);
  });

  test('after Redis has lost handled messages, the listener gets the later ones and none twice', async () => {
    const { id, got, closed } = await durably(redis, async () => {
      const id = await beginOne();
      const got: string[] = [];
      const closed = Promise.withResolvers<void>();
      runtime.inbox.attach(id, { message: (message) => void got.push(text(message)), closed: closed.resolve });
      for (const name of ['a', 'b']) await scheduler.inbox.push(id, { text: name });
      await eventually(() => got.length === 2, 'the first messages');
      return { id, got, closed };
    });
    await losingWrites(redis, async () => {
      for (const name of ['c', 'd', 'e']) await scheduler.inbox.push(id, { text: name });
      await eventually(() => got.length === 5, 'the messages that will be lost');
    });
    assert.equal(await scheduler.inbox.push(id, { text: 'f' }), 'ok');
    await eventually(() => got.length === 6, 'the message after the loss');
    await scheduler.inbox.push(id, { text: 'g' });
    await scheduler.inbox.close(id);
    await closed.promise;
    assert.deepEqual(got, ['a', 'b', 'c', 'd', 'e', 'f', 'g']);
  });

  /** Begins an attempt that takes all messages of its inbox. */
  async function beginListening(id: string) {
    const attempt = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in attempt);
    const got: string[] = [];
    const closed = Promise.withResolvers<void>();
    const handler = { message: (message: InboxMessage) => void got.push(text(message)), closed: closed.resolve };
    runtime.inbox.attach(id, handler, attempt.epoch);
    return { ...attempt, got, closed: closed.promise };
  }

  test('after a requeue, the next attempt gets all messages again, and the requeued attempt gets no more', async () => {
    const record = submission({ restartable: true });
    await scheduler.invocations.create(record);
    const first = await beginListening(record.id);
    const sent = Array.from({ length: MAX_INBOX_MESSAGES + 100 }, (_, i) => String(i));
    for (const [i, name] of sent.entries()) {
      await eventually(
        async () => (await scheduler.inbox.push(record.id, { text: name })) === 'ok',
        'the inbox has room',
      );
      if (i % 50 === 0) await eventually(() => first.got.length === i + 1, 'the message is handled');
    }
    await eventually(() => first.got.length === sent.length, 'all messages are handled');
    const requeue = () => scheduler.invocations.requeue(record.id, first.epoch, 1, 'for others', null);
    assert.deepEqual([await requeue(), await requeue()], ['requeued', 'requeued']);
    const second = await beginListening(record.id);
    await eventually(() => second.got.length === sent.length, 'the next attempt gets the messages again');
    assert.equal(await scheduler.inbox.push(record.id, { text: 'after' }), 'ok');
    await scheduler.inbox.close(record.id);
    await Promise.all([first.closed, second.closed]);
    assert.deepEqual(second.got, [...sent, 'after']);
    assert.deepEqual(first.got, sent);
  });

  test('a full inbox drops handled messages, and the invocation is then not restartable', async () => {
    const record = submission({ restartable: true });
    await scheduler.invocations.create(record);
    const { epoch, got } = await beginListening(record.id);
    const megabyte = new Uint8Array(MAX_MESSAGE_BYTES);
    for (let i = 0; i < 12; i += 1) {
      await eventually(
        async () => (await scheduler.inbox.push(record.id, { bytes: megabyte })) === 'ok',
        'the inbox has room',
      );
      await eventually(() => got.length === i + 1, 'the message is handled');
    }
    const keptCount = await scheduler.store.redis.llen(scheduler.store.keys.inbox(record.id));
    assert.ok(keptCount < 8, `${keptCount} of 12 messages are kept`);
    assert.equal(await scheduler.invocations.requeue(record.id, epoch, 1, 'for others', null), 'not-restartable');
  });

  test('equal messages with one idempotency key are delivered once', async () => {
    const id = await beginOne();
    const [a, b] = [{ text: 'a' }, { text: 'b' }];
    const { inbox, store } = scheduler;
    for (const one of [a, a, b, { bytes: Buffer.from('a') }]) assert.equal(await inbox.push(id, one, 'key'), 'ok');
    for (const key of ['other', undefined, undefined]) assert.equal(await inbox.push(id, a, key), 'ok');
    // Three different messages with one key, one with another key, and two without a key.
    assert.equal(await store.redis.llen(store.keys.inbox(id)), 6);
    assert.equal(await inbox.push(await beginOne(), a, 'key'), 'ok');
    await scheduler.invocations.fail(id, 'internal', 'x');
    // After the end, a repeated message still gets its first outcome.
    assert.deepEqual([await inbox.push(id, a, 'key'), await inbox.push(id, a)], ['ok', 'ended']);
  });

  test('the end of the invocation closes its inbox', async () => {
    const id = await beginOne();
    const closed = Promise.withResolvers<void>();
    runtime.inbox.attach(id, { message: () => undefined, closed: closed.resolve });
    await scheduler.invocations.fail(id, 'internal', 'x');
    await closed.promise;
    assert.equal(await scheduler.inbox.push(id, { text: 'late' }), 'ended');
    assert.equal(await scheduler.inbox.push('nobody', { text: 'x' }), 'unknown');
  });

  test('a delivery that fails for good closes the inbox for its listener', async () => {
    const id = await beginOne();
    await scheduler.store.redis.set(scheduler.store.keys.inbox(id), 'not a list');
    const closed = Promise.withResolvers<void>();
    runtime.inbox.attach(id, { message: () => undefined, closed: closed.resolve });
    await closed.promise;
    await scheduler.store.redis.del(scheduler.store.keys.inbox(id));
  });

  test('closing the scheduler ends a delivery that is still attached', async () => {
    const id = await beginOne();
    const leaving = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix });
    const closed = Promise.withResolvers<void>();
    const got: string[] = [];
    leaving.inbox.attach(id, { message: (message) => void got.push(text(message)), closed: closed.resolve });
    await scheduler.inbox.push(id, { text: 'hello' });
    await eventually(() => got.length === 1, 'the message');
    await leaving.close();
    await closed.promise;
  });
});
