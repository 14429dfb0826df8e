import assert from 'node:assert/strict';
import { rm, symlink } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { Queue } from 'bullmq';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { SCHEDULE_QUEUE } from '../keys.ts';
import { openScheduler, type Scheduler } from '../scheduler.ts';
import { openConnection } from '../store/connection.ts';
import { Store } from '../store/store.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { Schedule } from './rules.ts';
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

test('a firing during which the gateway died three times is ended: its schedule is suspended until it is resumed', async () => {
  const log = new CollectedLog();
  const own = openScheduler({ log, connect: redis.connect });
  const { store, schedules } = own;
  const runs: string[] = [];
  const worker = own.createScheduleWorker({
    run: async ({ name }) => {
      runs.push(name);
      return { invocation: `of ${name}` };
    },
  });
  const queue = new Queue(SCHEDULE_QUEUE, { connection: redis.connect(), prefix: store.keys.bull });
  const put = async (name: string) => {
    const timing = { cron: '0 3 1 1 *', timezone: 'UTC' };
    await schedules.put('default', { name, function: 'rerank', reference: '', input: '{}', timing }, 'key_test');
    return (await schedules.get('default', name)) ?? assert.fail('not stored');
  };
  /** Makes a schedule fire now, as the next gateway does after some others died during earlier firings. */
  const fireAfterDeaths = async ({ name, id }: Schedule, deaths: number) => {
    await store.redis.set(store.keys.unendedRuns(SCHEDULE_QUEUE, `default/${name}/${id}`), deaths);
    const jobs = await queue.getDelayed();
    await (jobs.find(({ data }) => data.id === id) ?? assert.fail('no job')).promote();
  };
  const lastOf = async (name: string) => (await schedules.get('default', name))?.last ?? null;
  const nextOf = async (name: string) => (await schedules.list('default')).find((one) => one.name === name)?.nextAt;
  try {
    const [innocent, poison] = [await put('innocent'), await put('poison')];
    worker.start();
    await fireAfterDeaths(innocent, 2);
    await eventually(async () => (await lastOf('innocent'))?.invocation === 'of innocent', 'it runs alone');
    await fireAfterDeaths(poison, 3);
    await eventually(async () => (await lastOf('poison'))?.suspended === true, 'it is suspended');
    await eventually(async () => (await nextOf('poison')) === null, 'it has no next time');
    assert.deepEqual(runs, ['innocent']);
    assert.match(
      (await lastOf('poison'))?.error?.message ?? '',
      /Three gateways in a row died.*`pie schedule resume poison`/,
    );
    assert.notEqual(await nextOf('innocent'), null);
    const warned = log.records.map(({ level, fields: { error: _, ...fields }, message }) => [level, fields, message]);
    assert.deepEqual(
      warned.map(([level, , message]) => [level, String(message).slice(0, 23)]),
      [
        ['warn', 'a schedule fires alone:'],
        ['error', 'a schedule is suspended'],
      ],
    );
    // A later outcome, of a firing that another gateway still held, and the repair at the start of a gateway leave it suspended.
    await schedules.note({ tenant: 'default', name: 'poison', id: poison.id }, { at: 1, invocation: 'late' });
    assert.equal(await schedules.repair(), 0);
    assert.deepEqual([(await lastOf('poison'))?.suspended, await nextOf('poison')], [true, null]);
    const resumed = await schedules.resume('default', 'poison');
    assert.deepEqual([resumed?.last, typeof resumed?.nextAt], [null, 'number']);
    await fireAfterDeaths(poison, 0);
    await eventually(async () => (await lastOf('poison'))?.invocation === 'of poison', 'it fires again');
    assert.equal(await schedules.resume('default', 'nothing'), null);
    const other = await schedules.resume('default', 'innocent');
    assert.equal(other?.last?.invocation, 'of innocent', 'a schedule that is not suspended stays as it is');
  } finally {
    await worker.stop();
    await queue.close();
    await own.close();
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
