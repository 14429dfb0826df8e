import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

/** The limits of the board. */
const MAX_PROCESSES = 256;
const MAX_SNAPSHOT_CHARACTERS = 2 * 1024 * 1024;

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

test('the board returns the last snapshot of each live process, ordered by process', async (t) => {
  const scheduler = openTestScheduler(redis);
  t.after(() => scheduler.close());
  const { metrics, store } = scheduler;
  assert.deepEqual(await metrics.read(), []);
  await metrics.publish('runtime-1', 'old');
  await metrics.publish('gateway', 'g');
  await metrics.publish('runtime-1', 'new');
  assert.deepEqual(await metrics.read(), [
    { process: 'gateway', text: 'g' },
    { process: 'runtime-1', text: 'new' },
  ]);
  // Makes the snapshot of `runtime-1` expire.
  await store.redis.zadd(store.keys.metricsExpiries, 1, 'runtime-1');
  assert.deepEqual(await metrics.read(), [{ process: 'gateway', text: 'g' }]);
  // Any process that publishes deletes expired snapshots.
  await metrics.publish('gateway', 'g');
  assert.deepEqual(await store.redis.hkeys(store.keys.metrics), ['gateway']);
});

test('the board refuses and does not store a snapshot that is too large, or that of one process too many', async (t) => {
  const scheduler = openTestScheduler(redis);
  t.after(() => scheduler.close());
  const { metrics } = scheduler;
  await assert.rejects(metrics.publish('runtime-1', 'x'.repeat(MAX_SNAPSHOT_CHARACTERS + 1)), /is the limit/);
  await Promise.all(Array.from({ length: MAX_PROCESSES }, (_, i) => metrics.publish(`p${i}`, '[]')));
  await assert.rejects(metrics.publish('one more', '[]'), /More than 256 processes/);
  await metrics.publish('p0', '[1]');
  assert.equal((await metrics.read()).length, MAX_PROCESSES);
});
