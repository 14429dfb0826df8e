import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { MAX_INPUT_BYTES } from '#scheduler/schedules/rules.ts';
import { Schedules } from '#scheduler/schedules/schedules.ts';
import type { ScheduleWorker } from '#scheduler/schedules/worker.ts';
import { definedScripts, eventually } from '#scheduler/testing/fixture.ts';
import type { PieClient } from '../client/client.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { scheduledRuns } from './scheduled-runs.ts';

const MINUTE_MS = 60_000;
const INPUT_SCHEMA = { type: 'object', properties: { prompt: { type: 'string' } }, required: ['prompt'] };

// A schedule has an entry in its tenant's hash, and a job scheduler of BullMQ, which fires at the times of the entry.
describe('schedules', () => {
  let platform: GatewayPlatform;
  let worker: ScheduleWorker;
  let client: PieClient;
  const start = () => {
    const { control, scheduler } = platform;
    worker = scheduler.createScheduleWorker({ run: scheduledRuns(control, scheduler.tenants) });
    worker.start();
  };
  const invocationsOf = async (name: string) => {
    const { invocations } = await client.operations.invocations({ function: name });
    return invocations;
  };
  const lastRunOf = async (name: string) =>
    (await client.schedules.list()).find((one) => one.name === name)?.last ?? null;

  before(async () => {
    platform = await GatewayPlatform.start();
    client = platform.client();
    start();
  });
  after(async () => {
    await worker.stop();
    await platform.stop();
  });

  it('a schedule makes ordinary invocations that name it', async () => {
    await platform.register({ name: 'story', input: INPUT_SCHEMA });
    const setAt = Date.now();
    const set = await client.schedules.put('often', { function: 'story', input: { prompt: 'Hé' }, everyMs: MINUTE_MS });
    assert.deepEqual([set.function, set.input, set.everyMs, set.last], ['story', { prompt: 'Hé' }, MINUTE_MS, null]);
    await eventually(async () => (await invocationsOf('story')).length === 1, 'an interval begins with a run');
    const [invocation] = await invocationsOf('story');
    assert.deepEqual([invocation?.status, invocation?.schedule], ['queued', 'often']);
    assert.deepEqual(await client.input(invocation?.id ?? ''), { prompt: 'Hé' });
    await eventually(async () => (await lastRunOf('often'))?.invocation === invocation?.id, 'the last run is noted');
    const attempt = await platform.attempt(invocation?.id ?? '');
    await attempt.succeed('done');
    assert.equal((await client.invocation(attempt.id)).schedule, 'often', 'an ended invocation names its schedule');
    const next = Date.parse((await client.schedules.list())[0]?.nextAt ?? '');
    const [earliest, latest] = [setAt + MINUTE_MS, Date.now() + MINUTE_MS];
    assert.ok(next >= earliest && next <= latest, `${next} is not from ${earliest} to ${latest}`);
  });

  it('schedules are replaced, listed by name, removed, and written into the audit log', async (t) => {
    await platform.register({ name: 'story', input: INPUT_SCHEMA });
    const times = { cron: '0 3 1 1 *', timezone: 'Europe/Berlin' };
    await client.schedules.put('b-yearly', { function: 'story@live', input: { prompt: 'x' }, ...times });
    await client.schedules.put('a-yearly', { function: 'story', input: { prompt: 'x' }, cron: '0 0 1 1 *' });
    const replaced = await client.schedules.put('a-yearly', {
      function: 'story',
      input: { prompt: 'y' },
      // BullMQ's own strategy refuses the pattern.
      cron: '0 0 1 2,2 *',
    });
    // `slice` cuts off the year, which depends on the day of the test, and the seconds.
    assert.deepEqual(
      [replaced.cron, replaced.timezone, replaced.nextAt?.slice(4, 16)],
      ['0 0 1 2,2 *', 'UTC', '-02-01T00:00'],
    );
    const yearly = (await client.schedules.list()).filter(({ name }) => name.endsWith('yearly'));
    assert.deepEqual(
      yearly.map(({ name, function: fn, nextAt }) => [name, fn, nextAt?.slice(4, 16)]),
      [
        ['a-yearly', 'story', '-02-01T00:00'],
        ['b-yearly', 'story@live', '-01-01T02:00'],
      ],
    );
    const { redis } = platform.scheduler.store;
    const hdel = redis.hdel.bind(redis);
    // Repeats the call, as if the connection had lost the first answer.
    const twice = t.mock.method(redis, 'hdel', async (...call: Parameters<typeof hdel>) => {
      await hdel(...call);
      return hdel(...call);
    });
    await client.schedules.remove('a-yearly');
    twice.mock.restore();
    await assert.rejects(client.schedules.remove('a-yearly'), { code: 'unknown-schedule' });
    const acts = (await platform.scheduler.audit.read({ tenant: 'default', limit: 20 })).filter(
      ({ target }) => target === 'a-yearly',
    );
    assert.deepEqual(
      acts.map(({ action }) => action),
      ['schedule.remove', 'schedule.set', 'schedule.set'],
    );
  });

  it('a schedule with a wrong field or an unknown function, or beyond the quota, is refused; the error names a wrong field', async () => {
    await platform.register({ name: 'story', input: INPUT_SCHEMA });
    const good = { function: 'story', input: { prompt: 'x' }, cron: '0 3 * * *' };
    const put = (more: object, name = 'refused') => client.schedules.put(name, { ...good, ...more });
    const assertRefused = async (more: object, code: string, field?: string) =>
      assert.rejects(put(more), { code, ...(field !== undefined && { field }) }, JSON.stringify(more));
    await assertRefused({ cron: '0 3 * *' }, 'invalid-input', '/cron');
    await assertRefused({ timezone: 'Nowhere' }, 'invalid-input', '/timezone');
    await assertRefused({ everyMs: MINUTE_MS }, 'invalid-input', '/everyMs');
    await assertRefused({ cron: undefined }, 'invalid-input', '/cron');
    await assertRefused({ cron: undefined, everyMs: 1000 }, 'invalid-input', '/everyMs');
    await assertRefused({ input: { prompt: 1 } }, 'invalid-input', '/prompt');
    await assertRefused({ input: { prompt: 'x'.repeat(MAX_INPUT_BYTES) } }, 'invalid-input', '/input');
    await assertRefused({ function: 'nothing' }, 'unknown-function');
    await assertRefused({ function: 'story@nothing' }, 'unknown-alias');
    await assertRefused({ other: 1 }, 'invalid-input', '/other');
    await assert.rejects(put({}, 'Not a name'), { code: 'invalid-input' });
    const reader = platform.client(await platform.key(['invoke']));
    await assert.rejects(reader.schedules.put('refused', good), { code: 'forbidden' });
    assert.equal(
      (await client.schedules.list()).some(({ name }) => name === 'refused'),
      false,
    );

    const used = (await client.schedules.list()).length;
    await platform.scheduler.quotas.setDefaults({ schedules: used + 1 });
    await put({}, 'last-one');
    // A replacement does not count as one more schedule.
    await put({ cron: '0 4 * * *' }, 'last-one');
    await assertRefused({}, 'quota-schedules');
    await client.schedules.remove('last-one');
    await platform.scheduler.quotas.setDefaults({});
  });

  it('a list has the inputs as they are stored, without an evaluation of each', async () => {
    await platform.register({ name: 'verbatim' }, 'verbatim');
    const key = await platform.key(['deploy', 'invoke'], 'verbatim');
    // The gateway stores no such text: one that it evaluated would lose the space, the zero and the last digits.
    const input = '{ "a": 1.0, "b": 9007199254740993 }';
    const timing = { cron: '0 3 * * *', timezone: 'UTC' };
    for (const name of ['a', 'b'])
      await platform.scheduler.schedules.put(
        'verbatim',
        { name, function: 'verbatim', reference: '', input, timing },
        'key_test',
      );
    const headers = { authorization: `Bearer ${key}` };
    const text = await (await fetch(`${platform.url}/v1/schedules`, { headers })).text();
    assert.equal(text.split(`"input":${input}`).length, 3, text);
    assert.deepEqual(
      (await platform.client(key).schedules.list()).map(({ name, input, cron }) => [name, input, cron]),
      ['a', 'b'].map((name) => [name, { a: 1, b: 2 ** 53 }, timing.cron]),
    );
  });

  it('a schedule that could not make an invocation stores the error as that of its last run', async () => {
    const owner = platform.client(await platform.key(['deploy', 'invoke'], 'paused'));
    await platform.register({ name: 'paused-story' }, 'paused');
    await platform.scheduler.tenants.change('paused', { suspended: true });
    await platform.scheduler.schedules.put(
      'paused',
      { name: 'never', function: 'paused-story', reference: '', input: '{}', timing: { everyMs: MINUTE_MS } },
      'key_test',
    );
    const lastError = async () => (await platform.scheduler.schedules.get('paused', 'never'))?.last?.error;
    await eventually(async () => (await lastError())?.code === 'tenant-suspended', 'the refusal is noted');
    assert.match((await lastError())?.message ?? '', /`pie tenants resume paused`/);
    await platform.scheduler.tenants.change('paused', { suspended: false });
    assert.equal((await owner.operations.invocations({})).invocations.length, 0);
  });

  it('a suspended schedule says why and how to resume it, and is resumed', async () => {
    await platform.register({ name: 'killer' });
    const { scheduler } = platform;
    const settings = { function: 'killer', cron: '0 3 1 1 *' };
    const suspend = async () => {
      const { id, tenant, name } = (await scheduler.schedules.get('default', 'deadly')) ?? assert.fail('not stored');
      const error = { code: 'internal', message: 'Three gateways died.' };
      await scheduler.schedules.note({ tenant, name, id }, { at: Date.now(), error, suspended: true });
      await scheduler.schedules.align(tenant, name);
      const shown = (await client.schedules.list()).find((one) => one.name === 'deadly');
      assert.deepEqual([shown?.suspended, shown?.nextAt], ['Three gateways died.', null]);
      assert.deepEqual(Object.keys(shown?.last ?? {}), ['at', 'error']);
    };
    await client.schedules.put('deadly', settings);
    await suspend();
    const resumed = await client.schedules.resume('deadly');
    assert.deepEqual([resumed.suspended, resumed.last, resumed.nextAt?.slice(4, 10)], [undefined, null, '-01-01']);
    await suspend();
    const put = await client.schedules.put('deadly', settings);
    assert.deepEqual([put.suspended, put.nextAt?.slice(4, 10)], [undefined, '-01-01']);
    await assert.rejects(client.schedules.resume('nothing'), { code: 'unknown-schedule' });
    const reader = platform.client(await platform.key(['invoke']));
    await assert.rejects(reader.schedules.resume('deadly'), { code: 'forbidden' });
    const acts = await scheduler.audit.read({ tenant: 'default', limit: 5 });
    assert.ok(acts.some(({ action, target }) => action === 'schedule.resume' && target === 'deadly'));
    await client.schedules.remove('deadly');
  });

  it('a schedule is removed with its function; `repair` starts a job scheduler that is missing or outdated', async () => {
    await platform.register({ name: 'short-lived' });
    await client.schedules.put('of-short-lived', { function: 'short-lived', cron: '0 3 * * *' });
    const { schedules } = platform.scheduler;
    await schedules.stop('default', 'of-short-lived');
    assert.equal((await schedules.list('default')).find(({ name }) => name === 'of-short-lived')?.nextAt, null);
    assert.equal(await schedules.repair(), 1);
    assert.equal(await schedules.repair(), 0);
    // The state after a process changed the entry and died before it changed the job scheduler.
    const { store } = platform.scheduler;
    const entry = JSON.parse((await store.redis.hget(store.keys.schedules('default'), 'of-short-lived')) ?? '');
    await store.redis.hset(
      store.keys.schedules('default'),
      'of-short-lived',
      JSON.stringify({ ...entry, id: 'changed' }),
    );
    assert.deepEqual([await schedules.repair(), await schedules.repair()], [1, 0]);
    assert.notEqual((await schedules.list('default')).find(({ name }) => name === 'of-short-lived')?.nextAt, null);
    await client.removeFunction('short-lived');
    assert.equal(
      (await client.schedules.list()).some(({ name }) => name === 'of-short-lived'),
      false,
    );
  });

  it('a schedule that is set during the removal of its function stays', async (t) => {
    const tenant = 'busy';
    const admin = platform.client(await platform.key(['admin'], tenant));
    const deploy = () => platform.register({ name: 'redeployed' }, tenant);
    const put = (name: string, fn: string, month: number) =>
      admin.schedules.put(name, { function: fn, cron: `0 3 1 ${month} *` });
    const listed = async () => (await admin.schedules.list()).map((one) => [one.name, one.function, one.cron]);
    const { scheduler } = platform;
    await deploy();
    await platform.register({ name: 'other' }, tenant);
    for (const name of ['first', 'second', 'third']) await put(name, 'redeployed', 1);
    const { id } = await admin.submit('redeployed', {});
    // Other clients make changes during the removal. One sets `second` for another function once the removal has read
    // the schedules. Another one deploys the function again and sets `third` before the removal cancels the invocation.
    const { redis } = scheduler.store;
    const originalHvals = redis.hvals.bind(redis);
    t.mock.method(redis, 'hvals', async (key: string) => {
      const found = await originalHvals(key);
      if (key === scheduler.store.keys.schedules(tenant) && !found.join().includes('other'))
        await put('second', 'other', 2);
      return found;
    });
    const cancel = scheduler.cancel.bind(scheduler);
    const cancelled = t.mock.method(scheduler, 'cancel', async (...call: Parameters<typeof cancel>) => {
      await deploy();
      await put('third', 'redeployed', 3);
      return cancel(...call);
    });
    await admin.removeFunction('redeployed', { now: true });
    t.mock.restoreAll();
    assert.equal(cancelled.mock.callCount(), 1, id);
    assert.deepEqual(await listed(), [
      ['second', 'other', '0 3 1 2 *'],
      ['third', 'redeployed', '0 3 1 3 *'],
    ]);
    assert.ok((await admin.schedules.list()).every(({ nextAt }) => nextAt !== null));
  });

  it('schedules stay when the tenant removes its own function and the platform shares one of the same name', async () => {
    await platform.register({ name: 'rerank' });
    const other = platform.client(await platform.key(['admin'], 'sharing'));
    const listed = async () => (await other.schedules.list()).map(({ name }) => name);
    await other.schedules.put('nightly', { function: 'rerank', cron: '0 3 * * *' });
    await assert.rejects(other.removeFunction('rerank'), /There is no function/);
    assert.deepEqual(await listed(), ['nightly']);
    await platform.register({ name: 'rerank' }, 'sharing');
    await other.removeFunction('rerank');
    assert.deepEqual(await listed(), ['nightly']);
  });

  it('a schedule fires at the times of its stored entry after two concurrent changes', async () => {
    await platform.register({ name: 'twice' }, 'hasty');
    const { store, quotas, schedules } = platform.scheduler;
    const slow = new Schedules(store, quotas, platform.redis.connect);
    const put = (by: Schedules, month: number) => {
      const timing = { cron: `0 3 1 ${month} *`, timezone: 'UTC' };
      const settings = { name: 'yearly', function: 'twice', reference: '', input: '{}', timing };
      return by.put('hasty', settings, 'key_test');
    };
    const nextMonth = async () => {
      const [yearly] = await schedules.list('hasty');
      return new Date(yearly?.nextAt ?? 0).getUTCMonth() + 1;
    };
    // Changes by another gateway. `slow` makes one after each of its reads of the entry, before its own next change.
    const otherChanges: (() => Promise<unknown>)[] = [];
    const get = slow.get.bind(slow);
    slow.get = async (...names) => {
      const found = await get(...names);
      await otherChanges.shift()?.();
      return found;
    };
    otherChanges.push(() => put(schedules, 2));
    await put(slow, 12);
    assert.equal(await nextMonth(), 2);
    otherChanges.push(() => put(schedules, 3));
    assert.equal(await slow.remove('hasty', 'yearly'), true);
    assert.equal(await nextMonth(), 3);
    otherChanges.push(() => schedules.remove('hasty', 'yearly'));
    assert.equal((await put(slow, 12))?.nextAt, null);
    assert.deepEqual(otherChanges, []);
    await slow.close();
  });

  it('`repair` starts a schedule whose gateway died before it created the first job scheduler of the tenant', async () => {
    await platform.register({ name: 'nightly' }, 'unlucky');
    const { store, quotas, schedules } = platform.scheduler;
    const dying = new Schedules(store, quotas, () => {
      throw new Error('died');
    });
    const timing = { cron: '0 3 1 1 *', timezone: 'UTC' };
    const settings = { name: 'yearly', function: 'nightly', reference: '', input: '{}', timing };
    await assert.rejects(dying.put('unlucky', settings, 'key_test'), /died/);
    assert.deepEqual([await schedules.repair(), await schedules.repair()], [1, 0]);
    const [yearly] = await schedules.list('unlucky');
    assert.equal(typeof yearly?.nextAt, 'number');
  });

  it("a schedule fires after a restart of the gateway, and defines no scripts on the store's connection", async () => {
    await platform.register({ name: 'later' });
    await worker.stop();
    await client.schedules.put('restarted', { function: 'later', everyMs: MINUTE_MS });
    start();
    await eventually(async () => (await invocationsOf('later')).length === 1, 'the missed firing is made up for');
    assert.deepEqual(definedScripts(platform.scheduler.store), []);
  });
});
