import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { type PutOutcome, versionOf } from './functions.ts';
import type { Manifest } from './manifest.ts';
import { Removals } from './removals.ts';
import type { FunctionVersion } from './types.ts';

describe('functions and components', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  function version(name: string, componentHash: string, manifest: Partial<Manifest> = {}): FunctionVersion {
    const full: Manifest = { name, ...manifest };
    return {
      name,
      version: versionOf(full, componentHash),
      tenant: 'default',
      manifest: full,
      componentHash,
      componentBytes: 4,
      createdAt: Date.now(),
    };
  }

  test('a blob is stored unchanged, a second upload extends its expiry, and it can be removed once', async () => {
    const { blobs, store } = scheduler;
    const bytes = new Uint8Array(randomBytes(100_000));
    const hash = await blobs.put('default', bytes, 60_000);
    assert.match(hash, /^[0-9a-f]{64}$/);
    assert.equal(await blobs.put('default', bytes), hash);
    assert.deepEqual(new Uint8Array((await blobs.get(hash)) ?? []), bytes);
    assert.ok(await blobs.has(hash));
    assert.ok((await store.redis.pttl(store.keys.blob(hash))) > 60_000, 'the second upload extends the expiry');
    assert.ok(await blobs.remove('default', hash));
    assert.ok(!(await blobs.remove('default', hash)));
    assert.equal(await blobs.get(hash), null);
  });

  test("a tenant's refused deploy removes no bytes that another tenant's deploy needs", async () => {
    const { blobs, functions, store } = scheduler;
    const bytes = new Uint8Array([3]);
    const hash = await blobs.put('one', bytes);
    await blobs.put('two', bytes);
    assert.ok(!(await blobs.remove('two', hash)));
    assert.ok(await blobs.has(hash), 'the first tenant still builds');
    assert.ok(await blobs.remove('one', hash), 'the bytes are removed with the last upload');

    await blobs.put('one', bytes);
    await blobs.put('two', bytes);
    assert.ok((await functions.put({ ...version('shared', hash), tenant: 'one' })).ok);
    assert.ok(!(await blobs.remove('two', hash)), 'a version uses the bytes');
    assert.equal(await store.redis.exists(store.keys.blobUploads(hash)), 0);
    await scheduler.removals.removeFunction('one', 'shared');
    assert.ok(!(await blobs.has(hash)));

    await blobs.put('one', bytes);
    await blobs.put('two', bytes);
    await store.redis.zadd(`${store.keys.account('one')}:redis-ends`, Date.now() - 1, `u:${hash}`);
    assert.ok(await blobs.remove('two', hash), 'the upload of the first tenant has expired');
  });

  test('equal content is the same version, and an alias serves the last deployed version', async () => {
    const { functions, blobs, store } = scheduler;
    const firstHash = await blobs.put('default', new Uint8Array([1]));
    const secondHash = await blobs.put('default', new Uint8Array([2]));
    const first = version('story', firstHash);
    const second = { ...version('story', secondHash), createdAt: first.createdAt + 1 };
    assert.notEqual(first.version, second.version);
    const created = async (outcome: Promise<PutOutcome>) => {
      const reply = await outcome;
      return reply.ok && reply.created;
    };
    assert.ok(await created(functions.put(first)));
    assert.ok(await created(functions.put(second)));
    assert.deepEqual(await functions.get('default', 'story'), second);
    assert.deepEqual(await functions.get('default', 'story', first.version), first);
    assert.ok(!(await created(functions.put(first))));
    assert.deepEqual(await functions.get('default', 'story'), first, 'the first version is served again');
    assert.deepEqual(await functions.versions('default', 'story'), [second, first]);
    assert.equal(await functions.get('default', 'story', 'nope'), null);
    assert.equal(await functions.get('elsewhere', 'story'), null);
    assert.equal(await store.redis.pttl(store.keys.blob(firstHash)), -1, 'a component in use does not expire');
    assert.ok(!(await blobs.remove('default', firstHash)));
    await functions.put(version('answer', firstHash));
    assert.deepEqual(await functions.names('default'), ['answer', 'story']);
    await functions.put(version('story', firstHash), { alias: null });
    assert.deepEqual(
      (await functions.inService('default')).map(({ name }) => name),
      ['answer', 'story'],
    );
  });

  test('rounds cancel the invocations of a removed version again, once per interval', async () => {
    const { functions, blobs, store } = scheduler;
    const removed = version('stuck', await blobs.put('default', new Uint8Array([7])));
    assert.ok((await functions.put(removed)).ok);
    await store.redis.sadd(store.keys.unfinished('default', 'stuck', removed.version), 'inv-stuck');
    const cancelled: string[] = [];
    const removals = new Removals({ store, log: silentLog, cancel: async (id) => cancelled.push(id) });
    await removals.removeFunction('default', 'stuck', true);
    for (let round = 0; round < 3; round++) await removals.sweep();
    // The removal cancels once, and the first round once more. The other two rounds fall into the same interval.
    assert.deepEqual(cancelled, ['inv-stuck', 'inv-stuck']);
    await store.redis.del(store.keys.unfinished('default', 'stuck', removed.version));
    await removals.sweep();
  });

  test('a version that cannot be read is not reported as missing', async () => {
    const { functions, store } = scheduler;
    await store.redis.set(store.keys.removedVersions('default', 'unreadable'), 'not a hash');
    await assert.rejects(functions.runnable('default', 'unreadable', 'v'), /WRONGTYPE/);
    await store.redis.del(store.keys.removedVersions('default', 'unreadable'));
  });

  test('a version whose component is missing is refused', async () => {
    assert.deepEqual(await scheduler.functions.put(version('unstored', 'f'.repeat(64))), {
      ok: false,
      reason: 'component-missing',
    });
    assert.equal(await scheduler.functions.get('default', 'unstored'), null);
  });

  test('a full Redis refuses a version whose component another version uses already', async () => {
    const { functions, blobs, store } = scheduler;
    const hash = await blobs.put('default', new Uint8Array([8]));
    assert.ok((await functions.put(version('fits', hash))).ok);
    await store.redis.config('SET', 'maxmemory', '1');
    try {
      const put = functions.put(version('too-much', hash));
      await assert.rejects(put, (error) => error instanceof StoreError && error.full);
    } finally {
      await store.redis.config('SET', 'maxmemory', '0');
    }
    assert.equal(await functions.get('default', 'too-much'), null);
  });

  test('the version depends on content and not on the order of keys', () => {
    const a = versionOf({ name: 'f', limits: { cpuMs: 1, tokens: 2 } }, 'hash');
    assert.equal(versionOf({ limits: { tokens: 2, cpuMs: 1 }, name: 'f' }, 'hash'), a);
    assert.notEqual(versionOf({ name: 'f', limits: { cpuMs: 2, tokens: 2 } }, 'hash'), a);
    assert.notEqual(versionOf({ name: 'f', limits: { cpuMs: 1, tokens: 2 } }, 'other'), a);
  });

  test('lists leave out the input schema', async () => {
    const { functions, blobs } = scheduler;
    const hash = await blobs.put('default', new Uint8Array([5]));
    const input = { type: 'object', properties: { prompt: { type: 'string' } } };
    const whole = version('checked', hash, { input, description: 'checks its input' });
    assert.ok((await functions.put(whole)).ok);
    const { input: _, ...manifest } = whole.manifest;
    const listed = { ...whole, manifest };
    assert.deepEqual(await functions.get('default', 'checked'), whole);
    assert.deepEqual(await functions.runnable('default', 'checked', whole.version), whole);
    assert.deepEqual((await functions.read('default', 'checked'))?.versions, [listed]);
    const found = (await functions.list('default')).find(({ version: { name } }) => name === 'checked');
    assert.deepEqual(found?.version, listed);
  });
});
