import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { DEFAULT_SCHEDULES } from '#scheduler/schedules/rules.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { defaultLimits } from './default-limits.ts';

describe('default limits', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  test('a tenant without limits of its own has the default ones: schedules, Redis memory and disk space', async () => {
    const scheduler = openTestScheduler(redis);
    try {
      await scheduler.quotas.setDefaults(await defaultLimits(scheduler.store, tmpdir()));
      const states = await scheduler.quotas.statusOfAll('acme');
      assert.deepEqual(
        states.map(({ quota, source }) => `${quota} ${source}`),
        ['schedules default', 'redis-bytes default', 'disk-bytes default'],
      );
      assert.equal(states[0]?.limit, DEFAULT_SCHEDULES);
    } finally {
      await scheduler.close();
    }
  });
});
