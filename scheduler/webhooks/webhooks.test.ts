import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Redis } from 'ioredis';
import { Reach } from '../addresses/reach.ts';
import { eventually, openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

test('a gateway that may not subscribe reports it, tries again, and stops', { timeout: 60_000 }, async () => {
  const redis = await TestRedis.start();
  const connections: Redis[] = [];
  const connect = () => {
    const connection = redis.connect();
    connections.push(connection);
    return connection;
  };
  const errors: unknown[] = [];
  const scheduler = openTestScheduler(redis, { connect, onError: (error) => errors.push(error) });
  try {
    const subscriber = connections[1] ?? assert.fail('no subscriber');
    await subscriber.call('ACL', 'SETUSER', 'deaf', 'on', 'nopass', '+@all', '~*', 'resetchannels');
    await subscriber.auth('deaf', '');
    const payload = () => assert.fail('nothing ends');
    const webhooks = scheduler.createWebhooks({ reach: new Reach({ privateHosts: [] }), payload, version: '1' });
    webhooks.start();
    await eventually(() => errors.length >= 2, 'two refusals are reported');
    for (const error of errors) assert.match(String(error), /NOPERM/);
    await webhooks.stop();
  } finally {
    await scheduler.close();
    await redis.stop();
  }
});
