import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import { openScheduler } from '../scheduler.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { MAX_WAITING_BYTES, MAX_WAITING_MESSAGES, type Subscription } from './messaging.ts';

const envelope = (text: string) => ({ sender: 'me', message: { text } });
/** Bytes of an encoded envelope besides its text: the sender, a zero byte and the kind. */
const HEAD_BYTES = 'me'.length + 2;
/** Length of a text whose envelope is just below 1 MiB. */
const LARGE_TEXT_BYTES = 2 ** 20 - 10;

/** The text of a subscription's next message; the kind of an item that is no message. */
async function textOf(subscription: Subscription): Promise<string> {
  const next = await subscription.next();
  if (next.kind !== 'message') return next.kind;
  return 'text' in next.envelope.message ? next.envelope.message.text : 'bytes';
}

describe('broadcasts', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Opens the messaging of processes that share a Redis. */
  function openProcesses(count: number) {
    const prefix = `topics-${randomUUID()}`;
    return Array.from({ length: count }, () => {
      const connections = [redis.connect(), redis.connect()];
      let opened = 0;
      const connect = () => connections[opened++] as (typeof connections)[number];
      const { messaging, store } = openScheduler({ log: silentLog, connect, prefix });
      return { ...messaging, close: () => messaging.close(), connections, keys: store.keys };
    });
  }

  async function subscribeReady(
    broadcasts: { subscribe(tenant: string, topic: string): Subscription },
    topic = 'news',
  ) {
    const subscription = broadcasts.subscribe('t', topic);
    await subscription.ready;
    return subscription;
  }

  test('broadcasts reach every subscription of all processes once, in order, and return the number of subscriptions', async () => {
    const [one, two] = openProcesses(2) as [ReturnType<typeof openProcesses>[0], ReturnType<typeof openProcesses>[0]];
    assert.equal(await one.broadcasts.broadcast('t', 'news', envelope('nobody')), 0);
    const [a, b, c] = [
      await subscribeReady(one.broadcasts),
      await subscribeReady(one.broadcasts),
      await subscribeReady(two.broadcasts),
    ];
    await subscribeReady(two.broadcasts, 'news/other');
    const other = two.broadcasts.subscribe('other', 'news');
    await other.ready;
    const texts = Array.from({ length: 20 }, (_, i) => String(i));
    const counts = await Promise.all(texts.map((text) => one.broadcasts.broadcast('t', 'news', envelope(text))));
    assert.deepEqual(
      counts,
      texts.map(() => 3),
    );
    for (const each of [a, b, c]) for (const text of texts) assert.equal(await textOf(each), text);
    const bytes = Uint8Array.of(0, 1, 0, 255);
    assert.equal(await two.broadcasts.broadcast('t', 'news', { sender: 'x', message: { bytes } }), 3);
    assert.deepEqual(await a.next(), { kind: 'message', envelope: { sender: 'x', message: { bytes } } });

    b.close();
    assert.deepEqual(await b.next(), { kind: 'closed' });
    await eventually(
      async () => (await two.broadcasts.broadcast('t', 'news', envelope('after'))) === 2,
      'b is not counted after it closed',
    );
  });

  test('a process that died is not counted; one that reconnects is counted, and its subscription gets `interrupted`', async () => {
    const [one, two] = openProcesses(2) as [ReturnType<typeof openProcesses>[0], ReturnType<typeof openProcesses>[0]];
    await Promise.all([subscribeReady(one.broadcasts), subscribeReady(one.broadcasts)]);
    const mine = await subscribeReady(two.broadcasts);
    // Closes the connections, as the death of the process would.
    for (const connection of one.connections) connection.disconnect();
    await eventually(
      async () => (await two.broadcasts.broadcast('t', 'news', envelope('x'))) === 1,
      'only the second process is counted',
    );
    while ((await two.broadcasts.broadcast('t', 'news', envelope('last'))) !== 1);
    // Skips the messages of the broadcasts above.
    for (let text = ''; text !== 'last'; ) text = await textOf(mine);

    const subscriber = two.connections[1] as (typeof two.connections)[number];
    subscriber.disconnect(true);
    assert.equal(await textOf(mine), 'interrupted');
    await eventually(
      async () => (await two.broadcasts.broadcast('t', 'news', envelope('back'))) === 1,
      'the second process is counted again',
    );
    assert.equal(await textOf(mine), 'back');
  });

  test('messages beyond the bounds are dropped, and one item in their place counts them', async () => {
    const [one] = openProcesses(1) as [ReturnType<typeof openProcesses>[0]];
    const many = await subscribeReady(one.broadcasts);
    const large = await subscribeReady(one.broadcasts, 'large');
    // A process receives all topics in one order: once `witness` has received its message, earlier ones have arrived too.
    const witness = await subscribeReady(one.broadcasts, 'witness');
    const send = (topic: string, text: string) => one.broadcasts.broadcast('t', topic, envelope(text));
    const dropped = 4;
    for (let i = 0; i < MAX_WAITING_MESSAGES + dropped; i++) void send('news', String(i));
    await send('witness', 'the last');
    assert.equal(await textOf(witness), 'the last');
    for (let i = 0; i < MAX_WAITING_MESSAGES; i++) assert.equal(await textOf(many), String(i));
    assert.deepEqual(await many.next(), { kind: 'dropped', messages: dropped });
    await send('news', 'later');
    assert.equal(await textOf(many), 'later');

    const largeText = 'x'.repeat(LARGE_TEXT_BYTES);
    // Six messages of 1 MiB are more than the 4 MiB that may wait.
    for (let i = 0; i < 6; i++) await send('large', largeText);
    await Promise.all([send('witness', 'after'), textOf(witness)]);
    let largeReceived = 0;
    while ((await textOf(large)).length === largeText.length) largeReceived++;
    assert.equal(largeReceived, Math.floor(MAX_WAITING_BYTES / (largeText.length + HEAD_BYTES)));
  });

  test('a message that waits in many subscriptions counts once, so other topics still have room', async () => {
    const [one] = openProcesses(1) as [ReturnType<typeof openProcesses>[0]];
    // If a message counted in each subscription, three would take 300 MiB, more than the 256 MiB that may wait in a process.
    const many = Array.from({ length: 100 }, () => one.broadcasts.subscribe('t', 'shared'));
    await Promise.all(many.map(({ ready }) => ready));
    const other = one.broadcasts.subscribe('other', 'mine');
    await other.ready;
    const largeText = 'x'.repeat(LARGE_TEXT_BYTES);
    for (let i = 0; i < 3; i++) {
      assert.equal(await one.broadcasts.broadcast('t', 'shared', envelope(largeText)), many.length);
    }
    await one.broadcasts.broadcast('other', 'mine', envelope('heard'));
    // `other` receives its message last: by then the messages of all other subscriptions wait.
    assert.equal(await textOf(other), 'heard');
    for (const each of many) {
      for (let i = 0; i < 3; i++) assert.equal((await textOf(each)).length, largeText.length);
    }
  });

  test('a subscription that closes while Redis is away is not counted after the reconnection', async () => {
    const [one, two] = openProcesses(2) as [ReturnType<typeof openProcesses>[0], ReturnType<typeof openProcesses>[0]];
    const leaving = await subscribeReady(one.broadcasts, 'left');
    await subscribeReady(one.broadcasts, 'kept');
    const [commands] = one.connections as [(typeof one.connections)[0]];
    commands.disconnect();
    await once(commands, 'end');
    const closing = leaving.close();
    assert.equal(await two.broadcasts.broadcast('t', 'left', envelope('x')), 1);
    await commands.connect();
    await closing;
    assert.equal(await two.broadcasts.broadcast('t', 'left', envelope('x')), 0);
    assert.equal(await two.broadcasts.broadcast('t', 'kept', envelope('x')), 1);
    commands.disconnect();
  });

  test('a repair that ends after the last subscription has left keeps the registration of the next subscription', async () => {
    const [one, two] = openProcesses(2) as [ReturnType<typeof openProcesses>[0], ReturnType<typeof openProcesses>[0]];
    const [, subscriber] = one.connections;
    assert.ok(subscriber);
    const admin = redis.connect();
    const counter = async (section: string, pattern: RegExp) =>
      Number(pattern.exec(await admin.info(section))?.[1] ?? 0);
    const registrations = () => counter('commandstats', /cmdstat_pubsub\|numsub:calls=(\d+)/);
    const refusals = () => counter('errorstats', /errorstat_OOM:count=(\d+)/);
    const first = await subscribeReady(one.broadcasts);
    const before = { registrations: await registrations(), refusals: await refusals() };
    await admin.config('SET', 'maxmemory', 1);
    subscriber.disconnect(true);
    // The repair pauses after Redis has refused its write.
    await eventually(async () => (await refusals()) > before.refusals, 'the repair is refused');
    await admin.config('SET', 'maxmemory', 0);
    await first.close();
    const next = await subscribeReady(one.broadcasts);
    // Three registrations: at the end of the first subscription, for the next subscription, and by the repair.
    await eventually(async () => (await registrations()) >= before.registrations + 3, 'the repair ends');
    assert.equal(await two.broadcasts.broadcast('t', 'news', envelope('x')), 1);
    assert.equal(await textOf(next), 'x');
  });

  test('`ready` of a subscription rejects when Redis cannot register it', async () => {
    const [one] = openProcesses(1) as [ReturnType<typeof openProcesses>[0]];
    await one.connections[0]?.set(one.keys.topic('t', 'broken'), 'no hash');
    await assert.rejects(subscribeReady(one.broadcasts, 'broken'), { code: 'store-corrupt', message: /WRONGTYPE/ });
  });

  test('pending calls of `next` are served first, and a new subscription gets only the messages that counted it', async () => {
    const [one] = openProcesses(1) as [ReturnType<typeof openProcesses>[0]];
    const first = await subscribeReady(one.broadcasts);
    const [waiting, second] = [first.next(), first.next()];
    const newcomer = one.broadcasts.subscribe('t', 'news');
    const counts = await Promise.all([
      one.broadcasts.broadcast('t', 'news', envelope('a')),
      newcomer.ready.then(() => one.broadcasts.broadcast('t', 'news', envelope('b'))),
    ]);
    assert.equal(counts[1], 2);
    assert.deepEqual(
      [await waiting, await second].map((next) => next.kind),
      ['message', 'message'],
    );
    // The count of `a` includes `newcomer` exactly when `newcomer` receives `a`.
    assert.equal(await textOf(newcomer), counts[0] === 2 ? 'a' : 'b');
    newcomer.close();
    first.close();
  });
});
