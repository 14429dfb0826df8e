import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { Redis } from 'ioredis';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { Reach } from '../addresses/reach.ts';
import { WEBHOOK_QUEUE } from '../keys.ts';
import { openMasterKeys } from '../secrets/master-keys.ts';
import { eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

test('a gateway whose Redis user may not subscribe reports each refusal, tries again, and can be stopped', {
  timeout: 240_000,
}, async () => {
  const redis = await TestRedis.start();
  const connections: Redis[] = [];
  const connect = () => {
    const connection = redis.connect();
    connections.push(connection);
    return connection;
  };
  const log = new CollectedLog();
  const { errors } = log;
  const scheduler = openTestScheduler(redis, { connect, log });
  try {
    // The scheduler opens the connection for commands first, and the one for subscriptions second.
    const subscriber = connections[1] ?? assert.fail('no subscriber');
    await subscriber.call('ACL', 'SETUSER', 'deaf', 'on', 'nopass', '+@all', '~*', 'resetchannels');
    await subscriber.auth('deaf', '');
    const payload = () => assert.fail('no invocation ends');
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

test("a webhook's signature has the time of the platform's clock", { timeout: 240_000 }, async () => {
  const redis = await TestRedis.start();
  const now = Date.UTC(2027, 0, 31);
  const environment = { PIE_MASTER_KEY: randomBytes(32).toString('base64') };
  const masterKeys = openMasterKeys('', { create: false, environment });
  const scheduler = openTestScheduler(redis, { clock: () => now, masterKeys });
  const timestamps: unknown[] = [];
  const receiver = createServer(({ headers }, response) => {
    timestamps.push(headers['webhook-timestamp']);
    response.writeHead(204).end();
  });
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  const reach = new Reach({ privateHosts: [{ host: '127.0.0.1' }] });
  const webhooks = scheduler.createWebhooks({ reach, payload: async () => '{}', version: '1' });
  try {
    webhooks.start();
    const webhookUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
    const record = submission({ submittedAt: now, webhookUrl });
    await scheduler.invocations.create(record);
    await scheduler.cancel(record.id, 'enough');
    await eventually(() => timestamps.length > 0, 'the receiver has the webhook');
    assert.equal(timestamps[0], String(now / 1000));
  } finally {
    await webhooks.stop();
    await scheduler.close();
    await redis.stop();
    receiver.closeAllConnections();
    receiver.close();
  }
});

test('a webhook whose body is made alone does not stop other webhooks while its receiver is slow', {
  timeout: 240_000,
}, async () => {
  const redis = await TestRedis.start();
  const log = new CollectedLog();
  const environment = { PIE_MASTER_KEY: randomBytes(32).toString('base64') };
  const scheduler = openTestScheduler(redis, { log, masterKeys: openMasterKeys('', { create: false, environment }) });
  const { store, invocations } = scheduler;
  const slow = Promise.withResolvers<ServerResponse>();
  const receiver = createServer(({ url }, response) => {
    if (url === '/slow') slow.resolve(response);
    else response.writeHead(204).end();
  });
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  const origin = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  const reach = new Reach({ privateHosts: [{ host: '127.0.0.1' }] });
  const webhooks = scheduler.createWebhooks({ reach, payload: async () => '{}', version: '1' });
  const ended = async (path: string, unendedRuns: number) => {
    const record = submission({ webhookUrl: `${origin}${path}` });
    await invocations.create(record);
    await store.redis.set(store.keys.unendedRuns(WEBHOOK_QUEUE, record.id), unendedRuns);
    await scheduler.cancel(record.id, 'enough');
    return record.id;
  };
  try {
    webhooks.start();
    await ended('/slow', 2);
    const response = await slow.promise;
    assert.match(log.records.at(-1)?.message ?? '', /^the body of a webhook is made alone/);
    const quick = await ended('/quick', 0);
    await eventually(async () => (await invocations.get(quick))?.webhook?.status === 'delivered', 'the other webhook');
    assert.ok(!response.destroyed, 'the slow receiver still has its request');
    response.writeHead(204).end();
  } finally {
    await webhooks.stop();
    await scheduler.close();
    await redis.stop();
    receiver.closeAllConnections();
    receiver.close();
  }
});

test('a delivery during which the gateway died three times is given up, and says why', {
  timeout: 240_000,
}, async () => {
  const redis = await TestRedis.start();
  const log = new CollectedLog();
  const environment = { PIE_MASTER_KEY: randomBytes(32).toString('base64') };
  const scheduler = openTestScheduler(redis, { log, masterKeys: openMasterKeys('', { create: false, environment }) });
  const { store, invocations } = scheduler;
  const reach = new Reach({ privateHosts: [{ host: '127.0.0.1' }] });
  const payload = () => assert.fail('the delivery was tried again');
  const webhooks = scheduler.createWebhooks({ reach, payload, version: '1' });
  try {
    const record = submission({ webhookUrl: 'http://127.0.0.1:1/' });
    await invocations.create(record);
    await store.redis.set(store.keys.unendedRuns(WEBHOOK_QUEUE, record.id), 3);
    await scheduler.cancel(record.id, 'enough');
    webhooks.start();
    await eventually(async () => (await invocations.get(record.id))?.webhook?.status === 'failed', 'it is given up');
    assert.match((await invocations.get(record.id))?.webhook?.lastError ?? '', /three gateways in a row died/);
    await eventually(() => log.records.length > 0, 'it is logged');
    const [{ level, fields, message } = assert.fail('nothing logged')] = log.records;
    assert.deepEqual([level, fields.invocation, message.slice(0, 21)], ['error', record.id, 'a webhook is given up']);
  } finally {
    await webhooks.stop();
    await scheduler.close();
    await redis.stop();
  }
});
