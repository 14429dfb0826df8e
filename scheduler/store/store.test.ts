import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import type { Redis } from 'ioredis';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Channels } from './channels.ts';
import { StoreError } from './errors.ts';
import type { Script } from './lua-script.ts';
import { DEFAULT_CALL_DEADLINE_MS, REPLY_MS, Store } from './store.ts';

const scriptOf = (name: string, lua: string): Script => ({
  name,
  lua,
  sha1: createHash('sha1').update(lua).digest('hex'),
});
const ECHO = scriptOf('echo', 'return ARGV[1]');
const ECHO_LIST = scriptOf('echo-list', 'return {ARGV[1]}');

describe('store', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
  });
  after(() => redis.stop());

  test('a script is sent once, then called by its hash, and sent again when Redis has lost it', async () => {
    const store = new Store(redis.connect());
    const bytes = Buffer.from([0xff, 0x00]);
    const counts = async () => {
      const info = await store.redis.info('commandstats');
      return ['eval', 'evalsha'].map((name) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(info)?.[1] ?? 0));
    };
    const callBoth = async () => {
      assert.equal(await store.script(ECHO, [], ['a']), 'a');
      assert.deepEqual(await store.scriptBuffers(ECHO_LIST, [], [bytes]), [bytes]);
      return counts();
    };
    assert.deepEqual(await callBoth(), [2, 0]);
    assert.deepEqual(await callBoth(), [2, 2]);
    await store.redis.script('FLUSH');
    // Redis counts the two EVALSHA that it refuses, too.
    assert.deepEqual(await callBoth(), [4, 4]);
  });

  test('a command that Redis refuses fails as a StoreError with its cause', async () => {
    const store = new Store(redis.connect());
    await store.call((client) => client.set('text', 'x'));
    await assert.rejects(
      store.call((client) => client.lpush('text', 'y')),
      (error) => error instanceof StoreError && error.code === 'store-corrupt' && error.cause instanceof Error,
    );
  });

  test('a write that Redis cannot serve now fails with `store-unavailable`, also in a transaction', async () => {
    const store = new Store(redis.connect());
    await store.redis.config('SET', 'min-replicas-to-write', '1');
    try {
      for (const write of [
        (client: Redis) => client.set('a', '1'),
        (client: Redis) => client.multi().set('a', '1').exec(),
      ])
        await assert.rejects(
          store.call<unknown>(write),
          (error) => error instanceof StoreError && error.code === 'store-unavailable',
        );
    } finally {
      await store.redis.config('SET', 'min-replicas-to-write', '0');
    }
  });

  test('a reply that arrives in time counts, however late the process reads it', async () => {
    const store = new Store(redis.connect());
    await store.ping();
    const server = net.createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const theirs = net.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
    const [ours] = (await once(server, 'connection')) as [net.Socket];
    try {
      const reply = store.call(() => {
        // A socket takes the place of Redis, which could answer after the deadline: the kernel has these bytes when `write` returns.
        theirs.write('in time');
        return once(ours, 'data');
      }, 20);
      // Blocks the event loop until the deadline has passed.
      const untilMs = performance.now() + 50;
      while (performance.now() < untilMs);
      assert.equal(String(await reply), 'in time');
    } finally {
      for (const socket of [ours, theirs]) socket.destroy();
      server.close();
    }
  });

  test('while Redis is away calls fail at their deadline and never run later; calls after its return work', async () => {
    const connection = redis.connect();
    await connection.ping();
    const store = new Store(connection, { deadlineMs: 300 });
    await redis.kill();
    // A command in flight at the loss of the connection may run after the reconnection; a command made after the loss must not.
    await eventually(() => store.redis.status !== 'ready', 'the connection loss is noticed');
    const unavailable = (error: unknown) =>
      error instanceof StoreError && error.code === 'store-unavailable' && error.unsent;
    await assert.rejects(
      store.call((client) => client.set('late', 'x')),
      unavailable,
    );
    const many = await Promise.allSettled(Array.from({ length: 100 }, () => store.script(ECHO, [], ['a'])));
    assert.ok(many.every((outcome) => outcome.status === 'rejected' && unavailable(outcome.reason)));
    assert.ok(store.redis.listenerCount('ready') < 10, 'the waiting calls share one listener');
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
      (error) => error instanceof StoreError && error.code === 'store-unavailable' && error.unsent,
    );
    assert.equal(await store.call((client) => client.get('too late')), null);
  });

  test('a call counts as sent once its commands were passed on, also when Redis is lost afterwards', async () => {
    const store = new Store(redis.connect(), { deadlineMs: 300 });
    await store.ping();
    const answer = store.call((client) => client.blpop('nothing', 0));
    await redis.kill();
    await assert.rejects(answer, (error) => error instanceof StoreError && !error.unsent);
    await redis.restart();
  });

  test('Redis keeps replies for longer than calls are repeated', () => {
    assert.ok(REPLY_MS > 2 * DEFAULT_CALL_DEADLINE_MS);
    const lua = readFileSync(new URL('./store.lua', import.meta.url), 'utf8');
    assert.equal(Number(/REMEMBERED_MS = (\d+)/.exec(lua)?.[1]), REPLY_MS);
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
    // `a` and `b` hear the first message; every later entry of `heard` follows the restart.
    await channels.listen(
      'news',
      listener('b', () => (heard.length < 3 ? first : second).resolve()),
    );
    await publisher.call((client) => client.publish('news', '1'));
    await first.promise;
    stopA();
    // A second stop changes nothing.
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

  const silent = { message: () => undefined, resumed: () => undefined };
  const connectReady = async () => {
    const connection = redis.connect();
    await connection.ping();
    return connection;
  };

  test('a channel that was left while Redis was away is not subscribed again', async () => {
    const subscriber = await connectReady();
    const channels = new Channels(subscriber);
    const stop = await channels.listen('left', silent);
    const resumed = Promise.withResolvers<void>();
    await channels.listen('kept', { ...silent, resumed: resumed.resolve });
    subscriber.disconnect(true);
    await once(subscriber, 'close');
    stop();
    await resumed.promise;
    const client = await connectReady();
    assert.deepEqual(await client.pubsub('NUMSUB', 'left', 'kept'), ['left', 0, 'kept', 1]);
    channels.close();
  });

  test('a subscription that Redis refuses fails, and leaves no listener', async () => {
    const subscriber = await connectReady();
    await subscriber.call('ACL', 'SETUSER', 'deaf', 'on', 'nopass', '+@all', '~*', 'resetchannels');
    await subscriber.auth('deaf', '');
    const channels = new Channels(subscriber);
    await assert.rejects(
      channels.listen('news', silent),
      (error) => error instanceof StoreError && /NOPERM/.test(error.message),
    );
    assert.equal(channels.size, 0);
  });

  test('a subscription that Redis confirms only after the deadline reports that it is active', async (t) => {
    const subscriber = await connectReady();
    const channels = new Channels(subscriber);
    const resumed = Promise.withResolvers<void>();
    process.kill(redis.pid ?? assert.fail(), 'SIGSTOP');
    try {
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const listening = channels.listen('slow', { ...silent, resumed: resumed.resolve });
      t.mock.timers.tick(DEFAULT_CALL_DEADLINE_MS);
      t.mock.timers.reset();
      await listening;
    } finally {
      process.kill(redis.pid ?? assert.fail(), 'SIGCONT');
    }
    await resumed.promise;
    channels.close();
  });
});
