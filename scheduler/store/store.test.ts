import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Channels } from './channels.ts';
import { StoreError } from './errors.ts';
import type { Script } from './lua-script.ts';
import { Store } from './store.ts';

const ECHO: Script = { name: 'echo', lua: 'return ARGV[1]', sha1: 'cd0d9e4a5e8a5ad2e2a0a3c5b16e1a7d4dbaa34f' };

describe('store', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  after(() => redis.stop());

  test('a script runs whether or not Redis has it cached', async () => {
    const store = new Store(redis.connect());
    assert.equal(await store.script(ECHO, [], ['a']), 'a');
    await store.redis.script('FLUSH');
    assert.equal(await store.script(ECHO, [], ['b']), 'b');
    assert.deepEqual(await store.scriptBuffers({ ...ECHO, lua: 'return {ARGV[1]}' }, [], [Buffer.from([0xff, 0x00])]), [
      Buffer.from([0xff, 0x00]),
    ]);
  });

  test('a command that Redis refuses fails as a StoreError with its cause', async () => {
    const store = new Store(redis.connect());
    await store.call((client) => client.set('text', 'x'));
    await assert.rejects(
      store.call((client) => client.lpush('text', 'y')),
      (error) => error instanceof StoreError && error.code === 'store-corrupt' && error.cause instanceof Error,
    );
  });

  test('while Redis is away calls fail at their deadline and never run later; calls after its return work', async () => {
    const connection = redis.connect();
    await connection.ping();
    const store = new Store(connection, { deadlineMs: 300 });
    await redis.kill();
    // A command in flight at the loss of the connection may run after the reconnection; a command made after the loss must not.
    await eventually(() => store.redis.status !== 'ready', 'the connection loss is noticed');
    const unavailable = (error: unknown) => error instanceof StoreError && error.code === 'store-unavailable';
    await assert.rejects(
      store.call((client) => client.set('late', 'x')),
      unavailable,
    );
    const many = await Promise.allSettled(Array.from({ length: 100 }, () => store.script(ECHO, [], ['a'])));
    assert.ok(many.every((outcome) => outcome.status === 'rejected' && unavailable(outcome.reason)));
    assert.ok(store.redis.listenerCount('ready') < 10);
    await redis.restart();
    const answers = () =>
      store.ping().then(
        () => true,
        () => false,
      );
    await eventually(answers, 'a call after the return works');
    assert.equal(await connection.get('late'), null);
  });

  test('a call with no time left sends nothing', async () => {
    const store = new Store(redis.connect());
    await store.ping();
    await assert.rejects(
      store.call((client) => client.set('too late', 'x'), 0),
      (error) => error instanceof StoreError && error.code === 'store-unavailable',
    );
    assert.equal(await store.call((client) => client.get('too late')), null);
  });

  test('a call on a closed connection fails at once', async () => {
    const store = new Store(redis.connect());
    await store.ping();
    store.redis.disconnect();
    await assert.rejects(store.ping(), (error) => error instanceof StoreError && error.code === 'store-unavailable');
  });
});

describe('channels', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  test('listeners share one subscription and are notified of an interruption', async () => {
    const publisher = new Store(redis.connect());
    const subscriber = redis.connect();
    await subscriber.ping();
    const channels = new Channels(subscriber);
    const heard: string[] = [];
    const resumed = Promise.withResolvers<void>();
    const listener = (name: string, onMessage: () => void) => ({
      message: (payload: Buffer) => {
        heard.push(`${name}:${payload.toString()}`);
        onMessage();
      },
      lost: () => heard.push(`${name} lost`),
      resumed: () => {
        heard.push(`${name} resumed`);
        resumed.resolve();
      },
    });
    const first = Promise.withResolvers<void>();
    const second = Promise.withResolvers<void>();
    await publisher.ping();
    const stopA = await channels.listen(
      'news',
      listener('a', () => undefined),
    );
    await channels.listen(
      'news',
      listener('b', () => (heard.length < 3 ? first : second).resolve()),
    );
    await publisher.call((client) => client.publish('news', '1'));
    await first.promise;
    stopA();
    stopA();
    assert.equal(channels.size, 1);
    heard.push('restart');
    await redis.restart();
    await resumed.promise;
    await publisher.call((client) => client.publish('news', '2'));
    await second.promise;
    channels.close();
    assert.equal(channels.size, 0);
    const news = heard.filter((line) => !line.endsWith('lost') && !line.endsWith('resumed'));
    assert.deepEqual(news.toSorted(), ['a:1', 'b:1', 'b:2', 'restart'].toSorted());
    assert.ok(
      heard.indexOf('b lost') > heard.indexOf('restart') && heard.indexOf('b resumed') > heard.indexOf('b lost'),
    );
  });
});
