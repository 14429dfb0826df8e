import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { MAX_KEYS } from '#scheduler/tenants/rules.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { SCOPES } from '../app/control.ts';
import { ensureCredentials } from './credentials.ts';

const URL = 'http://127.0.0.1:1';
/** Maximum keys of machines in the tenant. Above it, keys that have been unused for long make room for new ones. */
const MAX_MACHINE_KEYS = MAX_KEYS / 2;

describe('the credentials of an installation', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let home: string;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
    home = await mkdtemp(path.join(tmpdir(), 'pie-credentials-'));
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
    await rm(home, { recursive: true });
  });

  /** Tenant, scopes and id of a valid key. */
  const holder = async (apiKey: string) => {
    const authentication = await scheduler.apiKeys.authenticate(apiKey);
    assert.ok(authentication.kind === 'valid');
    return authentication.holder;
  };

  it('credentials are made once, with every scope, and kept', async () => {
    const first = await ensureCredentials(home, URL, scheduler);
    assert.deepEqual((await holder(first.apiKey)).scopes, SCOPES);
    assert.deepEqual(await ensureCredentials(home, `${URL}2`, scheduler), { ...first, url: `${URL}2` });
    const [key] = await scheduler.apiKeys.list('default');
    assert.equal(key?.name, 'credentials.json');
    const [act] = await scheduler.audit.read({ limit: 10 });
    assert.deepEqual([act?.actor, act?.action, act?.target], ['platform', 'key.create', key?.id]);
  });

  it('an existing key of this tenant or another keeps its scopes', async () => {
    for (const tenant of ['default', 'acme']) {
      await scheduler.tenants.ensure(tenant);
      const made = await scheduler.apiKeys.create(tenant, { name: 'k', scopes: ['invoke'] });
      assert.ok(made.kind === 'created');
      await writeFile(path.join(home, 'credentials.json'), JSON.stringify({ url: URL, apiKey: made.apiKey }));
      assert.equal((await ensureCredentials(home, URL, scheduler)).apiKey, made.apiKey);
      assert.deepEqual((await holder(made.apiKey)).scopes, ['invoke']);
    }
  });

  it('machine keys that are unused for long are removed, oldest first, to make room for the keys of new machines', async () => {
    const { apiKeys } = scheduler;
    const machineKeys = async () => (await apiKeys.list('default')).filter(({ name }) => name === 'credentials.json');
    const start = async () => ensureCredentials(await mkdtemp(path.join(home, 'machine-')), URL, scheduler);
    const client = redis.connect();
    /** Makes the credentials of a machine that started on a day of 2026, counted from 1, and has not used its key since. */
    const startEarlier = async (day: number) => {
      const credentials = await start();
      const sha256 = createHash('sha256').update(credentials.apiKey).digest('hex');
      const createdAt = new Date(Date.UTC(2026, 0, day)).toISOString();
      await client.hset(scheduler.store.keys.apiKey(sha256), { createdAt });
      return credentials;
    };
    const initialCount = (await machineKeys()).length;
    for (let i = initialCount; i < MAX_MACHINE_KEYS + 2; i++) await start();
    assert.equal(
      (await machineKeys()).length,
      MAX_MACHINE_KEYS + 2,
      'a key that was made today stays: it may belong to a machine that runs',
    );
    for (const { id } of await machineKeys()) await apiKeys.remove('default', id);

    const first = await startEarlier(1);
    for (let day = 2; day <= MAX_MACHINE_KEYS + 10; day++) await startEarlier(day);
    const oldKeys = await machineKeys();
    assert.equal(oldKeys.length, MAX_MACHINE_KEYS);
    assert.deepEqual(await apiKeys.authenticate(first.apiKey), { kind: 'unknown' });

    // There are fewer machine keys than allowed, but other keys fill the tenant.
    const machineKeyCount = MAX_MACHINE_KEYS - 10;
    for (const { id } of oldKeys.slice(machineKeyCount)) await apiKeys.remove('default', id);
    let otherKeys = 0;
    while ((await apiKeys.create('default', { name: 'k', scopes: ['invoke'] })).kind === 'created') otherKeys++;
    assert.ok(otherKeys > 0);
    assert.deepEqual((await holder((await start()).apiKey)).scopes, SCOPES);
    assert.equal((await machineKeys()).length, machineKeyCount, 'one old key has made room for the new one');
  });
});
