import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';
import { TestRedis } from '../testing/redis.ts';
import { WorkerConnection } from './connection.ts';

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

test('no copy of a closed connection connects again', async () => {
  const connection = new WorkerConnection(redis.connect());
  const copies = [connection.redis.duplicate(), connection.redis.duplicate({ lazyConnect: true })];
  await once(copies[0]!, 'ready');
  const ends = [connection.redis, ...copies].map((each) => once(each, 'end'));
  connection.close();
  await Promise.all(ends);
  for (const copy of copies) await assert.rejects(copy.connect(), /Connection is closed/);
  const probe = redis.connect();
  const clients = String(await probe.client('LIST'));
  // Redis lists one client a line.
  assert.equal(clients.trim().split('\n').length, 1, `only the probe is connected: ${clients}`);
});
