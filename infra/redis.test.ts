import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Redis } from 'ioredis';
import { KeyValues } from '#scheduler/key-values/key-values.ts';
import { MessageQueues } from '#scheduler/messaging/messaging.ts';
import { Channels } from '#scheduler/store/channels.ts';
import { isConnectionError } from '#scheduler/store/errors.ts';
import { Store } from '#scheduler/store/store.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { connectRedis, redisOptions } from './redis.ts';

/** Duration of the platform's longest blocking command, which is BullMQ's, milliseconds. */
const LONGEST_WAIT_MS = 10_000;

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

/** Opens a connection through a proxy; 1 s without data counts as silence. `pairs`: for each connection, the client's and Redis's socket. */
async function connectThroughProxy() {
  const pairs: (readonly [Socket, Socket])[] = [];
  const server = createServer((client) => {
    const toRedis = connect(redis.socket);
    for (const socket of [client, toRedis]) socket.on('error', () => undefined);
    client.pipe(toRedis).pipe(client);
    pairs.push([client, toRedis]);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { socketTimeout, ...options } = redisOptions({ redis: { kind: 'external', url } });
  assert.ok(socketTimeout !== undefined && socketTimeout > LONGEST_WAIT_MS, `${socketTimeout}`);
  const connection = new Redis({ ...options, socketTimeout: 1000 });
  const errors: unknown[] = [];
  connection.on('error', (error) => errors.push(error));
  const close = async () => {
    connection.disconnect();
    for (const socket of pairs.flat()) socket.destroy();
    server.close();
    await once(server, 'close');
  };
  return { connection, pairs, errors, close };
}

test('a connection that falls silent without being closed is replaced, and its commands are sent again', async () => {
  const { connection, pairs, errors, close } = await connectThroughProxy();
  try {
    await connection.set('key', 'value');
    // As if Redis had moved to another machine: the connections to the earlier machine stay open, and nothing comes back over them.
    for (const [client, toRedis] of pairs) {
      client.unpipe(toRedis);
      toRedis.unpipe(client);
    }
    assert.equal(await connection.get('key'), 'value');
    assert.ok(pairs.length > 1);
    assert.ok(errors.length > 0 && errors.every((error) => isConnectionError(error)), errors.join());
  } finally {
    await close();
  }
});

test('after a silent connection is replaced, calls whose callers gave up are not sent again, and others are', async () => {
  const { connection, pairs, close } = await connectThroughProxy();
  const other = redis.connect();
  try {
    const store = new Store(connection, { deadlineMs: 200 });
    const values = new KeyValues(store);
    const queues = new MessageQueues(store, new Channels(redis.connect()));
    const otherValues = new KeyValues(new Store(other));
    await otherValues.write('t', 'kept', Buffer.from('0'));
    await store.ping();
    for (const [client, toRedis] of pairs) toRedis.unpipe(client);
    const unanswered = { code: 'store-unavailable' };
    const pushed = assert.rejects(queues.push('t', 'q', { sender: 's', message: { text: 'm' } }), unanswered);
    const patientCall = store.call((client) => client.incr('patient'), 60_000);
    await assert.rejects(values.write('t', 'x', Buffer.from('1')), unanswered);
    await pushed;
    // ioredis holds this command back while the answer to the command before it is missing.
    await assert.rejects(values.delete('t', 'kept'), unanswered);
    const found = async (key: string) => String((await otherValues.get('t', key))?.value);
    assert.equal(await found('x'), '1', 'Redis has run the write');
    await otherValues.write('t', 'x', Buffer.from('2'));
    // As after an outage that lasted longer than Redis keeps replies: the repeated call runs anew.
    for (const reply of await other.keys(store.keys.reply('*'))) await other.del(reply);
    assert.equal(await patientCall, 2, 'sent again, since its caller waits');
    await store.ping();
    assert.equal(await found('x'), '2');
    assert.equal(await found('kept'), '0');
    assert.equal(await other.zcard(store.keys.messageQueue('t', 'q')), 1);
  } finally {
    await close();
    other.disconnect();
  }
});

test('a connection to a Redis that becomes a replica is replaced, and reaches the new primary', async () => {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-replica-'));
  const address = path.join(directory, 'redis.sock');
  await symlink(redis.socket, address);
  const primary = await TestRedis.start();
  const operator = redis.connect();
  const connection = connectRedis({ redis: { kind: 'external', url: `unix:${address}` } });
  const write = () => connection.eval("return redis.call('SET', KEYS[1], 'value')", 1, 'key');
  try {
    assert.equal(await write(), 'OK');
    await operator.call('REPLICAOF', '127.0.0.1', '1');
    await rm(address);
    await symlink(primary.socket, address);
    await assert.rejects(write(), /READONLY/);
    assert.equal(await write(), 'OK');
  } finally {
    connection.disconnect();
    await operator.call('REPLICAOF', 'NO', 'ONE');
    await primary.stop();
    await rm(directory, { recursive: true });
  }
});
