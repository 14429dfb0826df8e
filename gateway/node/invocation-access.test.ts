import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler, submission } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import type { Call, Scope } from '../app/control.ts';
import { InvocationAccess } from './invocation-access.ts';

describe('InvocationAccess', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let ids: string[];
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
    ids = [];
    for (const _ of [1, 2]) {
      const newInvocation = submission({ tenant: 'theirs' });
      await scheduler.submit(newInvocation);
      ids.push(newInvocation.id);
    }
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  const call = (keyId: string, requestId: string, tenant = 'default', scope: Scope = 'operator'): Call => ({
    principal: { tenant, keyId, scopes: [scope] },
    requestId,
    traceparent: '',
    signal: new AbortController().signal,
  });
  const recordedActors = async () =>
    (await scheduler.audit.read({ tenant: 'theirs', limit: 100 })).map(({ actor }) => actor);

  it('records the reads with one request id once a minute, for each key and invocation', async () => {
    let now = 0;
    const access = new InvocationAccess(scheduler, () => now);
    const [first = '', second = ''] = ids;
    const read = async (by: Call, id: string) => assert.equal((await access.open(by, id, 'read'))?.id, id);
    await read(call('key-1', 'r-1'), first);
    await read(call('key-1', 'r-1'), first);
    assert.deepEqual(await recordedActors(), ['key-1']);
    await read(call('key-1', 'r-2'), first);
    await read(call('key-2', 'r-1'), first);
    await read(call('key-3', 'r-1'), first);
    await read(call('key-3', 'r-1'), second);
    assert.deepEqual(await recordedActors(), ['key-3', 'key-3', 'key-2', 'key-1', 'key-1']);
    now = 59_999;
    await read(call('key-1', 'r-1'), first);
    assert.equal((await recordedActors()).length, 5);
    now = 60_000;
    await read(call('key-1', 'r-1'), first);
    assert.equal((await recordedActors()).length, 6);
  });

  it('records the lists of a tenant once a minute, for each key', async () => {
    let now = 0;
    const access = new InvocationAccess(scheduler, () => now);
    const count = (await recordedActors()).length;
    await access.recordList(call('key-6', 'r-1'), 'theirs');
    for (const request of ['r-1', 'r-2']) await access.recordList(call('key-6', request), 'theirs');
    await access.recordList(call('key-7', 'r-1'), 'theirs');
    await access.recordList(call('key-8', 'r-1', 'theirs', 'invoke'), 'theirs');
    now = 60_000;
    await access.recordList(call('key-6', 'r-1'), 'theirs');
    const acts = await recordedActors();
    assert.deepEqual(acts.slice(0, acts.length - count), ['key-6', 'key-7', 'key-6']);
    const [act] = await scheduler.audit.read({ tenant: 'theirs', limit: 1 });
    assert.deepEqual([act?.action, act?.target], ['invocation.list', 'theirs']);
  });

  it('records a repeated read when the entry of the first read could not be written', async (t) => {
    const access = new InvocationAccess(scheduler, () => 0);
    const [id = ''] = ids;
    const acts: ((by: Call) => Promise<unknown>)[] = [
      (by) => access.open(by, id, 'read'),
      (by) => access.recordList(by, 'theirs'),
    ];
    for (const [i, act] of acts.entries()) {
      const by = call(`key-retry-${i}`, 'r-1');
      const failing = t.mock.method(scheduler.audit, 'record', () => Promise.reject(new Error('away')));
      await assert.rejects(act(by), /away/);
      failing.mock.restore();
      await act(by);
      assert.equal((await recordedActors())[0], by.principal.keyId);
    }
  });

  it('finds nothing for an admin of another tenant, and records each change by an operator but no act of the owner', async () => {
    const access = new InvocationAccess(scheduler, () => 0);
    const [id = ''] = ids;
    const count = (await recordedActors()).length;
    assert.equal(await access.open(call('key-4', 'r', 'default', 'admin'), id, 'read'), null);
    assert.equal((await access.open(call('key-4', 'r', 'theirs', 'invoke'), id, 'read'))?.id, id);
    assert.equal((await recordedActors()).length, count);
    for (const _ of [1, 2]) await access.open(call('key-5', 'r'), id, 'cancel');
    assert.deepEqual((await recordedActors()).slice(0, 2), ['key-5', 'key-5']);
    assert.equal((await recordedActors()).length, count + 2);
  });
});
