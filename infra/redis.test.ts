import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Redis } from 'ioredis';
import { isConnectionError } from '#scheduler/store/errors.ts';
import { loadScript } from '#scheduler/store/lua-script.ts';
import { DEFAULT_CALL_DEADLINE_MS, REPLY_MS } from '#scheduler/store/store.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { connectRedis, redisOptions } from './redis.ts';

/** The longest blocking command of the platform, BullMQ's, milliseconds. */
const LONGEST_WAIT_MS = 10_000;

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

test('a connection that falls silent without an end is opened anew, and its commands are sent again', async () => {
  const pairs: (readonly [Socket, Socket])[] = [];
  const server = createServer((client) => {
    const behind = connect(redis.socket);
    for (const socket of [client, behind]) socket.on('error', () => undefined);
    client.pipe(behind).pipe(client);
    pairs.push([client, behind]);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { socketTimeout, ...options } = redisOptions({ redis: { kind: 'external', url } });
  assert.ok(socketTimeout !== undefined && socketTimeout > LONGEST_WAIT_MS, `${socketTimeout}`);
  const connection = new Redis({ ...options, socketTimeout: 1000 });
  const errors: unknown[] = [];
  connection.on('error', (error) => errors.push(error));
  try {
    await connection.set('key', 'value');
    // Redis has moved to another machine, and its earlier one is gone: the connections to that one stay, and nothing comes back.
    for (const [client, behind] of pairs) {
      client.unpipe(behind);
      behind.unpipe(client);
    }
    assert.equal(await connection.get('key'), 'value');
    assert.ok(pairs.length > 1);
    assert.ok(errors.length > 0 && errors.every((error) => isConnectionError(error)), errors.join());
  } finally {
    connection.disconnect();
    for (const socket of pairs.flat()) socket.destroy();
    server.close();
    await once(server, 'close');
  }
});

test('Redis keeps the reply to a call until a silent connection is opened anew and the call is sent again', () => {
  const { socketTimeout = 0 } = redisOptions({ redis: { kind: 'external', url: 'redis://localhost' } });
  assert.ok(REPLY_MS > socketTimeout + 2 * DEFAULT_CALL_DEADLINE_MS);
  const { lua } = loadScript(new URL('../scheduler/store/scripts/once.lua', import.meta.url));
  assert.equal(Number(/REMEMBERED_MS = (\d+)/.exec(lua)?.[1]), REPLY_MS);
});

test('a connection to a Redis that has become a replica is opened anew, and leads to its successor', async () => {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-replica-'));
  const address = path.join(directory, 'redis.sock');
  await symlink(redis.socket, address);
  const next = await TestRedis.start();
  const operator = redis.connect();
  const connection = connectRedis({ redis: { kind: 'external', url: `unix:${address}` } });
  const write = () => connection.eval("return redis.call('SET', KEYS[1], 'value')", 1, 'key');
  try {
    assert.equal(await write(), 'OK');
    await operator.call('REPLICAOF', '127.0.0.1', '1');
    await rm(address);
    await symlink(next.socket, address);
    await assert.rejects(write(), /READONLY/);
    assert.equal(await write(), 'OK');
  } finally {
    connection.disconnect();
    await operator.call('REPLICAOF', 'NO', 'ONE');
    await next.stop();
    await rm(directory, { recursive: true });
  }
});
