import assert from 'node:assert/strict';
import { rm, symlink } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import { openScheduler, type Scheduler } from '../scheduler.ts';
import { openConnection } from '../store/connection.ts';
import { Store } from '../store/store.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Schedules } from './schedules.ts';

let redis: TestRedis;
let scheduler: Scheduler;
before(async () => {
  redis = await TestRedis.start();
  scheduler = openScheduler({ log: silentLog, connect: redis.connect });
});
after(async () => {
  await scheduler.close();
  await redis.stop();
});

test('a change that a gateway has given up does not undo a later change, and the job scheduler follows the entry', async () => {
  const { store, quotas, schedules } = scheduler;
  const path = `${redis.socket}.cut`;
  await symlink(redis.socket, path);
  const connection = openConnection(path);
  const impatient = new Store(redis.connect(), { prefix: store.keys.prefix, deadlineMs: 500 });
  const cutSchedules = new Schedules(impatient, quotas, () => connection);
  // The month tells the changes apart: each one sets the schedule to the first day of another month.
  const put = (by: Schedules, month: number) => {
    const timing = { cron: `0 3 1 ${month} *`, timezone: 'UTC' };
    const settings = { name: 'yearly', function: 'rerank', reference: '', input: '{}', timing };
    return by.put('default', settings, 'key_test');
  };
  const untilStartsIn = (month: number) =>
    eventually(async () => {
      const [yearly] = await schedules.list('default');
      return yearly?.nextAt != null && new Date(yearly.nextAt).getUTCMonth() + 1 === month;
    }, `the schedule starts in month ${month}`);
  const whileAway = async (work: () => Promise<unknown>) => {
    await rm(path);
    connection.stream.destroy();
    await work();
    await symlink(redis.socket, path);
    // Redis answers the ping only after the commands that waited before it.
    await connection.ping();
  };
  try {
    await put(schedules, 2);
    await cutSchedules.list('default');
    await whileAway(async () => {
      await assert.rejects(cutSchedules.remove('default', 'yearly'), { code: 'store-unavailable' });
      await put(schedules, 3);
    });
    await untilStartsIn(3);
    await whileAway(() => assert.rejects(put(cutSchedules, 4), { code: 'store-unavailable' }));
    await untilStartsIn(4);
  } finally {
    await cutSchedules.close();
  }
});

test('the worker of schedules stops while Redis is away', { timeout: 240_000 }, async () => {
  const worker = scheduler.createScheduleWorker({ run: () => assert.fail('no schedule was set') });
  worker.start();
  // A connected worker waits for firings in this command.
  await eventually(
    async () => String(await scheduler.store.redis.client('LIST')).includes('cmd=bzpopmin'),
    'the worker is connected',
  );
  await redis.kill();
  // All connections notice the outage in the same turn of the event loop. `stop` could wait for ever only once the worker has noticed it.
  await eventually(() => scheduler.store.redis.status !== 'ready', 'the connections notice that Redis is away');
  await worker.stop();
});
