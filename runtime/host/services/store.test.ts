import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import { KeyValues } from '#scheduler/key-values/key-values.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import type { Entry } from '#wit/generated/host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';

const MAX_VALUE_BYTES = 2 ** 20;
const bytes = (text: string) => new Uint8Array(Buffer.from(text));

describe('store', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
    // A busy machine takes seconds for 33 MiB.
    scheduler = openTestScheduler(redis, { deadlineMs: 60_000 });
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  const inferlet = (grants: Partial<Grants> = { store: 'write' }, tenant = 'default') =>
    new TestInferlet(null, { tenant, grants, services: { keyValues: scheduler.keyValues } });
  const call = <T>(guest: TestInferlet, name: string, ...args: unknown[]) =>
    guest.call<Promise<Outcome<T>>>('store', name, ...args);
  const failure = async (guest: TestInferlet, name: string, ...args: unknown[]) => {
    const outcome = await call<unknown>(guest, name, ...args);
    return outcome.tag === 'err' ? outcome.val.tag : 'ok';
  };

  it('shares the values of one function with the other functions of its tenant', async () => {
    const [writer, reader, stranger] = [inferlet(), inferlet({ store: 'read' }), inferlet(undefined, 'other')];
    const memory = bytes('first');
    const writing = call<bigint>(writer, 'set', 'a/é', memory, undefined);
    memory.fill(0);
    const version = value(await writing);
    const found = value(await call<Entry | undefined>(reader, 'get', 'a/é'));
    assert.deepEqual([Buffer.from(found?.value ?? []).toString(), found?.version], ['first', version]);
    assert.equal(value(await call(stranger, 'exists', 'a/é')), false);
    assert.equal(value(await call(writer, 'compare-and-set', 'a/é', undefined, bytes('x'))), undefined);
    const next = value(await call<bigint>(writer, 'compare-and-set', 'a/é', version, bytes('second')));
    assert.ok(next > version);
    assert.deepEqual(value(await call(reader, 'list-keys', 'a/', undefined, 10)), ['a/é']);
    assert.deepEqual(
      [value(await call(writer, 'delete-key', 'a/é')), value(await call(writer, 'delete-key', 'a/é'))],
      [true, false],
    );
    assert.equal(value(await call(reader, 'get', 'a/é')), undefined);
  });

  it('refuses missing grants and invalid keys or values', async () => {
    const [nothing, reader, writer] = [inferlet({}), inferlet({ store: 'read' }), inferlet()];
    assert.equal(await failure(nothing, 'get', 'k'), 'unsupported');
    assert.equal(await failure(nothing, 'list-keys', '', undefined, 1), 'unsupported');
    assert.equal(await failure(reader, 'set', 'k', bytes(''), undefined), 'unsupported');
    assert.equal(await failure(reader, 'compare-and-set', 'k', undefined, bytes('')), 'unsupported');
    assert.equal(await failure(reader, 'delete-key', 'k'), 'unsupported');
    assert.equal(await failure(writer, 'get', ''), 'invalid-argument');
    assert.equal(await failure(writer, 'exists', 'é'.repeat(257)), 'invalid-argument');
    assert.equal(await failure(writer, 'set', 'k'.repeat(512), new Uint8Array(MAX_VALUE_BYTES), undefined), 'ok');
    assert.equal(await failure(writer, 'set', 'k', new Uint8Array(MAX_VALUE_BYTES + 1), undefined), 'limit-exceeded');
    assert.equal(await failure(writer, 'set', 'k', bytes(''), 0), 'invalid-argument');
    assert.equal(await failure(writer, 'list-keys', '', undefined, 0), 'invalid-argument');
    assert.equal(await failure(writer, 'list-keys', '', undefined, 1001), 'invalid-argument');
  });

  it('distinguishes a full store of the tenant from a store that is away', async () => {
    const keyValues = new KeyValues(scheduler.store, { maxKeys: 2 });
    const guest = new TestInferlet(null, { tenant: 'full', grants: { store: 'write' }, services: { keyValues } });
    const small = bytes('x');
    for (const key of ['a', 'b']) value(await call<bigint>(guest, 'set', key, small, undefined));
    const refused = await call<bigint>(guest, 'set', 'c', small, undefined);
    assert.ok(refused.tag === 'err' && refused.val.tag === 'limit-exceeded');
    assert.match(refused.val.val, /the tenant's store has 2 keys/);
    value(await call(guest, 'delete-key', 'a'));
    assert.equal(await failure(guest, 'set', 'c', small, undefined), 'ok');

    guest.inferlet.stop(handlerError('cancelled', 'no more'));
    assert.equal(await failure(guest, 'get', 'c'), 'cancelled');
    const away = openTestScheduler(redis);
    await away.close();
    const other = new TestInferlet(null, { grants: { store: 'write' }, services: { keyValues: away.keyValues } });
    assert.equal(await failure(other, 'get', 'c'), 'unavailable');
  });

  it('holds at most 32 MiB of unread values until the inferlet reads or drops them', async () => {
    const guest = inferlet();
    value(await call(guest, 'set', 'large', new Uint8Array(MAX_VALUE_BYTES), undefined));
    const get = () => guest.callOnly<Promise<Outcome<Entry | undefined>>>('store', 'get', 'large');
    const tags = async (answers: Promise<Outcome<unknown>>[]) =>
      (await Promise.all(answers)).map((outcome) => (outcome.tag === 'err' ? outcome.val.tag : 'ok'));
    const first = Array.from({ length: 33 }, get);
    assert.deepEqual(await tags(first), [...Array(32).fill('ok'), 'limit-exceeded']);
    assert.deepEqual(await tags([guest.callOnly('store', 'list-keys', '', undefined, 10)]), ['limit-exceeded']);
    for (const answer of first.slice(0, 2)) TestInferlet.releaseFuture(answer);
    // A call that is dropped before it settles takes no room.
    const dropped = get();
    TestInferlet.releaseFuture(dropped);
    await dropped;
    assert.deepEqual(await tags([get(), get(), get()]), ['ok', 'ok', 'limit-exceeded']);
    for (const answer of first) TestInferlet.releaseFuture(answer);
    assert.equal(guest.inferlet.unread.bytes, 2 * MAX_VALUE_BYTES);
  });

  it('has at most 32 MiB of writes in flight', async () => {
    const guest = inferlet();
    const value = new Uint8Array(MAX_VALUE_BYTES);
    const sets = Array.from({ length: 33 }, () => failure(guest, 'set', 'flood', value, undefined));
    assert.deepEqual(await Promise.all(sets), [...Array(32).fill('ok'), 'limit-exceeded']);
    assert.equal(await failure(guest, 'set', 'flood', value, undefined), 'ok');
  });
});
