import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { QuotaExceeded } from './exceeded.ts';
import { redisShareBytes } from './limits.ts';

const NOTE = { author: 'key_1', reason: '' };
const MIB = 2 ** 20;
/** Bytes that each stored value takes besides its key and content. */
const VALUE_BYTES = 8;

describe('bytes in Redis', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now: number;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());
  beforeEach(() => {
    now = Date.now();
    scheduler = openTestScheduler(redis, { clock: () => now });
    return () => scheduler.close();
  });

  const limitTo = (limit: number | null) =>
    scheduler.quotas.set('acme', { quota: 'redis-bytes', limit, function: null, until: null }, NOTE);
  const used = async () => (await scheduler.quotas.status('acme')).find(({ quota }) => quota === 'redis-bytes')?.used;
  const assertRefused = async (work: Promise<unknown>) => {
    const error = await work.then(
      () => assert.fail('the write was accepted'),
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof QuotaExceeded, String(error));
    assert.equal(error.quota, 'redis-bytes');
    assert.match(error.message, /bytes are used by the tenant's waiting inputs, events, .* wait until/s);
  };
  /** All keys of the scheduler in Redis, except usage, which counts refusals. */
  const dumpAll = async () => {
    const { redis: client, keys } = scheduler.store;
    const found: Record<string, string | null> = {};
    for (const key of (await client.keys(`${keys.prefix}:*`)).sort()) {
      if (!key.includes(':usage:')) found[key] = (await client.dumpBuffer(key))?.toString('hex') ?? null;
    }
    return found;
  };

  test('every kind of write beyond the quota is refused and stores nothing', async () => {
    await limitTo(100_000_000);
    const { invocations, inbox, files, keyValues, messaging, blobs, functions } = scheduler;
    const submit = (input = '{}') => {
      const record = submission({ tenant: 'acme', submittedAt: now, input });
      return invocations.create(record).then(() => record.id);
    };
    const id = await submit();
    const attempt = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in attempt);
    const { epoch, nextSeq } = attempt;
    const componentHash = await blobs.put('acme', Buffer.from('uploaded'));
    // From here on, the tenant has no free byte.
    await limitTo((await used()) ?? 0);
    const dumpBefore = await dumpAll();
    const big = 'x'.repeat(1000);
    await assertRefused(submit());
    await assertRefused(invocations.append(id, epoch, nextSeq, [{ event: 'message', data: JSON.stringify(big) }]));
    await assertRefused(invocations.append(id, epoch, nextSeq, [{ event: 'log', data: '1' }], { outputTokens: 1 }));
    await assertRefused(invocations.finish(id, epoch, nextSeq, { event: 'result', data: JSON.stringify(big) }, null));
    await assertRefused(inbox.push(id, { text: 'a' }));
    await assertRefused(files.put(id, 'a', 'text/plain', Buffer.from('a')));
    await assertRefused(keyValues.write('acme', 'a', Buffer.from('a')));
    await assertRefused(messaging.queues.push('acme', 'a', { sender: '', message: { text: 'a' } }));
    await assertRefused(blobs.put('acme', Buffer.from(big)));
    const child = { ...submission({ tenant: 'acme', id: 'child' }), arrival: 1, parent: id, root: id, runtimeId: 'r1' };
    await assertRefused(invocations.beginChild({ ...child, parentEpoch: epoch }, 'token'));
    const version = { tenant: 'acme', name: 'story', version: 'v1', componentHash, componentBytes: 8, createdAt: now };
    await assertRefused(functions.put({ ...version, manifest: { name: 'story' } } as never));
    assert.deepEqual(await dumpAll(), dumpBefore);

    const other = submission({ tenant: 'other', submittedAt: now });
    assert.ok((await invocations.create(other)).created, 'another tenant has its own quota');
    const failure = { event: 'error', code: 'quota-storage', message: 'full', data: '{}' } as const;
    assert.equal(
      await invocations.finish(id, epoch, nextSeq, failure, null),
      'ok',
      'an end with an error is always stored',
    );
    // After forty days, all that Redis keeps of an ended invocation has expired, so its bytes are free again.
    now += 40 * 86_400_000;
    await submit();
  });

  test('a tenant whose inputs would fill Redis is refused in time, so that another tenant has room', async () => {
    const client = redis.connect();
    const maxBytes = 256 * MIB;
    await client.config('SET', 'maxmemory', String(maxBytes));
    try {
      await scheduler.quotas.setDefaults({ 'redis-bytes': redisShareBytes(maxBytes) });
      const inputBytes = 4 * MIB;
      const input = JSON.stringify('x'.repeat(inputBytes - 100));
      let acceptedCount = 0;
      for (let sentBytes = 0; sentBytes < maxBytes; sentBytes += inputBytes) {
        const outcome = await scheduler
          .submit(submission({ tenant: 'flood', submittedAt: now, input }))
          .catch((error: unknown) => error);
        if (outcome instanceof Error) assert.ok(outcome instanceof QuotaExceeded, String(outcome));
        else acceptedCount += 1;
      }
      // The limit of 128 MiB is 32 times 4 MiB, but each invocation also takes a record of 2 KiB.
      assert.equal(acceptedCount, 31, 'half of a small Redis has room for 31 inputs of 4 MiB with their records');
      assert.ok((await scheduler.submit(submission({ tenant: 'acme', submittedAt: now, input }))).created);
      assert.ok(((await scheduler.store.memory()).usedBytes ?? 0) < maxBytes);
    } finally {
      await client.config('SET', 'maxmemory', '0');
      client.disconnect();
    }
  });

  test('a repair drops lost values from an account, corrects the sum, and creates a missing account', async () => {
    const { store, quotas, invocations } = scheduler;
    const { redis: client, keys } = store;
    await limitTo(100_000_000);
    await client.sadd(keys.tenants, 'acme');
    const [lost, kept] = [submission({ tenant: 'acme' }), submission({ tenant: 'acme' })];
    for (const record of [lost, kept]) await invocations.create(record);
    await scheduler.keyValues.write('acme', 'key', Buffer.from('value'));
    const before = (await used()) ?? 0;
    assert.equal(await quotas.repairAccounts(0), 0);
    assert.equal(await quotas.repairAccounts(), null, 'a second repair in a row does nothing');

    const account = `${keys.account('acme')}:redis`;
    await client.hincrby(account, 'bytes', 12_345);
    assert.equal(await quotas.repairAccounts(0), 1);
    assert.equal(await used(), before);
    await client.del(keys.invocation(lost.id));
    // Adds holders to the account (see account.lua): 500 bytes of a log that does not exist, and 700 bytes that expired in the first minute of 1970.
    await client.hset(account, 'l:lost', 500, '@1', 700);
    assert.equal(await quotas.repairAccounts(0), 1);
    assert.ok(((await used()) ?? 0) < before, 'the lost record is not counted');
    assert.deepEqual(await client.hkeys(account).then((fields) => fields.sort()), ['bytes', `i:${kept.id}`].sort());
    // A restored tenant has no account. A new account has no entries for invocations of that time, only the stored value.
    await client.del(account);
    assert.equal(await quotas.repairAccounts(0), 1);
    assert.equal(await used(), 'key'.length + 'value'.length + VALUE_BYTES);
    // A repair without an argument runs only after a pause of five seconds.
    now += 10_000;
    assert.equal(await quotas.repairAccounts(), 0);
  });

  test('a repair checks only a few tenants, and only a part of the holders of a large account', async () => {
    const { store, quotas } = scheduler;
    const { redis: client, keys } = store;
    const account = (tenant: string) => `${keys.account(tenant)}:redis`;
    /** Adds entries of lost holders, which make the account wrong. */
    const addLostHolders = (tenant: string, count: number) =>
      client.hset(account(tenant), Object.fromEntries(Array.from({ length: count }, (_, i) => [`l:lost${i}`, 1])));
    const tenants = Array.from({ length: 20 }, (_, i) => `t${i}`);
    await client.sadd(keys.tenants, ...tenants);
    for (const tenant of tenants) await addLostHolders(tenant, 1);
    for (let wrongAccounts = tenants.length; wrongAccounts > 0; ) {
      const corrected = (await quotas.repairAccounts(0)) ?? 0;
      // TENANTS_LOOKED_AT in `repair-accounts` of account.lua.
      assert.ok(corrected <= 8, `one repair corrected ${corrected} accounts`);
      wrongAccounts -= corrected;
    }

    await client.del(keys.tenants);
    await client.sadd(keys.tenants, 'large');
    await addLostHolders('large', 600);
    await quotas.repairAccounts(0);
    assert.ok((await client.hlen(account('large'))) > 300, 'most holders wait for later repairs');
    for (let i = 0; i < 10; i += 1) await quotas.repairAccounts(0);
    assert.equal(await client.exists(account('large')), 0, 'later repairs have dropped the other holders');

    await client.sadd(keys.tenants, 'larger');
    for (const tenant of ['large', 'larger']) {
      await addLostHolders(tenant, 20_000);
      // A wrong sum, so that each repair of the account counts as a correction.
      await client.hset(account(tenant), 'bytes', 7);
    }
    assert.deepEqual(
      [await quotas.repairAccounts(0), await quotas.repairAccounts(0)],
      [1, 1],
      'after a tenant with 20,000 holders, a repair checks no further tenant',
    );
  });

  test('the share of a tenant is half of a small Redis and a quarter of a large one', () => {
    assert.deepEqual(
      [256, 512, 1024, 16_384].map((mib) => redisShareBytes(mib * MIB) / MIB),
      [128, 256, 256, 4096],
    );
  });
});
