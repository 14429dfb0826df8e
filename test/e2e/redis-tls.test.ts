import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import tls from 'node:tls';
import type { Redis, RedisOptions } from 'ioredis';
import { newCertificate } from '#infra/links/security.ts';
import { connectRedis } from '#infra/redis.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { beginAttempt, submission } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';

const PASSWORD = 'p@ss/word';

describe('a Redis over TCP with TLS and a password', () => {
  let directory: string;
  let redis: TestRedis;
  let server: tls.Server;
  let ca: string;
  const opened: Redis[] = [];
  before(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-redis-tls-'));
    redis = await TestRedis.start();
    const admin = redis.connect();
    await admin.config('SET', 'requirepass', PASSWORD);
    const { key, certificate } = await newCertificate('localhost', Date.now());
    ca = path.join(directory, 'ca.pem');
    await writeFile(ca, certificate);
    // Not every build of redis-server has TLS, so this server terminates TLS.
    server = tls.createServer({ key, cert: certificate }, (socket) => {
      const redisSocket = connect(redis.socket);
      socket.pipe(redisSocket).pipe(socket);
      socket.on('error', () => redisSocket.destroy());
      redisSocket.on('error', () => socket.destroy());
    });
    await new Promise<void>((resolve) => {
      server.listen(0, 'localhost', resolve);
    });
  });
  after(async () => {
    for (const connection of opened) connection.disconnect();
    await new Promise((resolve) => server.close(resolve));
    await redis.stop();
    await rm(directory, { recursive: true });
  });

  const open = (options: { password?: string; ca?: string }, overrides: RedisOptions = {}): Redis => {
    const { password = PASSWORD } = options;
    const url = `rediss://:${encodeURIComponent(password)}@localhost:${(server.address() as AddressInfo).port}/0`;
    const settings = { kind: 'external' as const, url, ...(options.ca && { ca: options.ca }) };
    const connection = connectRedis({ redis: settings }, overrides);
    connection.on('error', () => undefined);
    opened.push(connection);
    return connection;
  };

  it('serves a scheduler: its scripts and its subscriptions', async () => {
    const scheduler = openScheduler({ log: silentLog, connect: () => open({ ca }), prefix: 'tls', leaseMs: 60_000 });
    try {
      const record = submission();
      await scheduler.invocations.create(record);
      const cancelled = Promise.withResolvers<string>();
      const stop = await scheduler.control.onCancel('r', cancelled.resolve);
      assert.ok('epoch' in (await beginAttempt(scheduler, record.id, 'r')));
      assert.equal(await scheduler.control.requestCancel(record.id, 'enough'), 'requested');
      assert.equal(await cancelled.promise, record.id);
      stop();
    } finally {
      await scheduler.close();
    }
  });

  it('refuses a wrong password; a client that does not trust its certificate authority refuses the connection', async () => {
    const once: RedisOptions = { lazyConnect: true, maxRetriesPerRequest: 0, retryStrategy: () => null };
    await assert.rejects(open({ ca, password: 'wrong' }, once).ping(), /WRONGPASS|NOAUTH/);
    const stranger = open({}, once);
    const failed = new Promise<Error>((resolve) => stranger.once('error', resolve));
    await assert.rejects(stranger.connect());
    assert.match((await failed).message, /self-signed certificate/);
  });
});
