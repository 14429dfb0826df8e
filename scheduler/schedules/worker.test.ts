import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openScheduler, type Scheduler } from '../scheduler.ts';
import { TestRedis } from '../testing/redis.ts';

let redis: TestRedis;
let scheduler: Scheduler;
before(async () => {
  redis = await TestRedis.start();
  scheduler = openScheduler({ connect: redis.connect });
});
after(async () => {
  await scheduler.close();
  await redis.stop();
});

test('the worker of schedules stops while Redis is away', { timeout: 60_000 }, async () => {
  const worker = scheduler.createScheduleWorker({ run: () => assert.fail('no schedule was set') });
  worker.start();
  // The store answers, so the worker has had time to connect.
  await scheduler.tenants.ensure('default');
  await redis.kill();
  await worker.stop();
});
