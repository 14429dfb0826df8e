import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { IndexClient } from '#index-host/protocol/client.ts';
import { IndexError } from '#index-host/protocol/errors.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { eventually, openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import type { Condition, IndexEntry, IndexInfo, Match } from '#wit/generated/host.ts';
import { TestIndexHost } from '../testing/index-host.ts';
import { TestInferlet } from '../testing/inferlet.ts';
import { value } from '../testing/outcome.ts';
import { Indexes } from './indexes.ts';

type DeleteArguments = Parameters<IndexClient['delete']>;

const NOTE = { author: 'test', reason: 'a test' };

describe('index', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let host: TestIndexHost;
  let indexes: Indexes;
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis);
    host = new TestIndexHost();
    await host.start();
    indexes = new Indexes({ socket: host.socket, sums: scheduler.indexBytes, machine: null });
  });
  after(async () => {
    indexes.close();
    await host[Symbol.asyncDispose]();
    await scheduler.close();
    await redis.stop();
  });

  const inferlet = (grants: Partial<Grants> = { store: 'write' }, tenant = 'default', services = { indexes }) =>
    new TestInferlet(null, { tenant, grants, services });
  const call = <T>(guest: TestInferlet, name: string, ...args: unknown[]) =>
    guest.call<Promise<Outcome<T>>>('index', name, ...args);
  const failure = async (guest: TestInferlet, name: string, ...args: unknown[]) => {
    const outcome = await call<unknown>(guest, name, ...args);
    return outcome.tag === 'err' ? outcome.val.tag : 'ok';
  };
  const entry = (id: string, text?: string): IndexEntry => ({
    id,
    text,
    fields: [
      { name: 'long', value: { tag: 'boolean', val: id.length > 4 } },
      { name: 'letters', value: { tag: 'number', val: id.length } },
    ],
  });
  const floats = (...values: number[]) => Float32Array.from(values);
  const query = (guest: TestInferlet, name: string, vector?: Float32Array, text?: string, filter: Condition[] = []) =>
    call<readonly Match[]>(guest, 'query', name, vector, text, filter, 5);
  const limitTo = (tenant: string, limit: number) =>
    scheduler.quotas.set(tenant, { quota: 'storage-bytes', limit, function: null, until: null }, NOTE);
  /** Bytes that count against the storage quota of a tenant, which must have a limit. */
  const usedBytes = async (tenant: string) =>
    (await scheduler.quotas.status(tenant, null)).find(({ quota }) => quota === 'storage-bytes')?.used;

  it('keeps entries for all functions of a tenant, and finds them by vector, text and fields', async () => {
    const [writer, reader, stranger] = [inferlet(), inferlet({ store: 'read' }), inferlet(undefined, 'stranger')];
    await limitTo('default', 1e9);
    value(await call(writer, 'create', 'places', 2, 'cosine'));
    const memory = floats(0, 1, 1, 0);
    const writing = call<undefined>(writer, 'upsert', 'places', [entry('north', 'cold wind'), entry('east')], memory);
    memory.fill(9);
    value(await writing);
    const [best, second] = value(await query(reader, 'places', floats(0.1, 1)));
    assert.deepEqual(best?.entry, entry('north', 'cold wind'));
    assert.ok(best.score > 0.9 && second?.entry.id === 'east');
    const short = { field: 'long', comparison: 'not-equal', values: [{ tag: 'boolean', val: true }] } as const;
    assert.deepEqual(
      value(await query(reader, 'places', floats(0, 1), undefined, [short])).map((m) => m.entry.id),
      ['east'],
    );
    assert.deepEqual(
      value(await query(reader, 'places', undefined, 'a COLD day')).map((m) => m.entry.id),
      ['north'],
    );
    assert.equal(await failure(stranger, 'stats', 'places'), 'not-found');
    assert.deepEqual(value(await call(stranger, 'list-indexes')), []);
    const stats = value(await call<IndexInfo>(reader, 'stats', 'places'));
    assert.deepEqual([stats.entries, stats.dimensions, stats.metric], [2n, 2, 'cosine']);
    assert.equal(await usedBytes('default'), Number(stats.bytes));
    assert.equal(value(await call(writer, 'delete-entries', 'places', ['east', 'west'])), 1);
    assert.equal(value(await call(writer, 'drop-index', 'places')), true);
    assert.equal(value(await call(writer, 'drop-index', 'places')), false);
    assert.equal(await usedBytes('default'), 0);
  });

  it('refuses missing grants, wrong arguments, and calls past each bound', async () => {
    const [nothing, reader, writer] = [inferlet({}), inferlet({ store: 'read' }), inferlet()];
    assert.equal(await failure(nothing, 'list-indexes'), 'unsupported');
    assert.equal(await failure(nothing, 'query', 'a', floats(1), undefined, [], 1), 'unsupported');
    assert.equal(await failure(reader, 'create', 'a', 2, 'cosine'), 'unsupported');
    assert.equal(await failure(reader, 'upsert', 'a', [], floats()), 'unsupported');
    assert.equal(await failure(reader, 'drop-index', 'a'), 'unsupported');
    for (const name of ['', '../a', '.a', 'a/b', 'x'.repeat(129)]) {
      assert.equal(await failure(writer, 'create', name, 2, 'cosine'), 'invalid-argument', name);
    }
    assert.equal(await failure(writer, 'create', 'a', 0, 'cosine'), 'invalid-argument');
    assert.equal(await failure(writer, 'create', 'a', 4097, 'cosine'), 'invalid-argument');
    value(await call(writer, 'create', 'a', 2, 'cosine'));
    assert.equal(await failure(writer, 'create', 'a', 2, 'euclidean'), 'invalid-argument');
    assert.equal(await failure(writer, 'upsert', 'a', [entry('x')], floats(1)), 'invalid-argument');
    assert.equal(await failure(writer, 'upsert', 'a', [entry('x')], floats(1, Number.NaN)), 'invalid-argument');
    assert.equal(await failure(writer, 'upsert', 'a', [entry('')], floats(1, 1)), 'invalid-argument');
    const many = Array.from({ length: 257 }, (_, i) => entry(`${i}`));
    assert.equal(await failure(writer, 'upsert', 'a', many, new Float32Array(514)), 'limit-exceeded');
    assert.equal(await failure(writer, 'upsert', 'a', [entry('x')], new Float32Array(2 ** 20 + 1)), 'limit-exceeded');
    assert.equal(await failure(writer, 'query', 'a', undefined, undefined, [], 1), 'invalid-argument');
    assert.equal(await failure(writer, 'query', 'a', floats(), 'cold', [], 1), 'invalid-argument');
    assert.equal(await failure(writer, 'query', 'a', floats(1, 1), undefined, [], 257), 'invalid-argument');
    const order = { field: 'long', comparison: 'less', values: [{ tag: 'boolean', val: true }] };
    assert.equal(await failure(writer, 'query', 'a', floats(1, 1), undefined, [order], 1), 'invalid-argument');
    assert.equal(value(await call<IndexInfo>(writer, 'stats', 'a')).entries, 0n);
  });

  it('counts towards the storage quota together with other content, and a refused write leaves nothing', async () => {
    const tenant = 'bounded';
    const guest = inferlet(undefined, tenant);
    await limitTo(tenant, 1e9);
    value(await call(guest, 'create', 'a', 2, 'cosine'));
    value(await call(guest, 'upsert', 'a', [entry('one')], floats(1, 0)));
    const bytes = (await usedBytes(tenant)) ?? 0;
    await limitTo(tenant, bytes + 100);
    assert.equal(await failure(guest, 'upsert', 'a', [entry('two')], floats(0, 1)), 'limit-exceeded');
    assert.equal((await scheduler.keyValues.write(tenant, 'k', new Uint8Array(50))).kind, 'written');
    await assert.rejects(scheduler.keyValues.write(tenant, 'other', new Uint8Array(60)), /storage-bytes/);
    assert.deepEqual(
      value(await query(guest, 'a', floats(0, 1))).map((match) => match.entry.id),
      ['one'],
    );
    // A write that replaces an entry by one of the same size has room.
    value(await call(guest, 'upsert', 'a', [entry('one')], floats(0, 1)));
    value(await call(guest, 'delete-entries', 'a', ['one']));
    assert.equal((await scheduler.keyValues.write(tenant, 'other', new Uint8Array(60))).kind, 'written');
  });

  it('counts the bytes of a write whose inferlet ended before the answer', async () => {
    const tenant = 'hasty';
    const guest = inferlet(undefined, tenant);
    await limitTo(tenant, 1e9);
    value(await call(guest, 'create', 'a', 1, 'cosine'));
    // These entries do not come from a guest, so their bytes are not told to Redis.
    const options = { signal: new AbortController().signal, deadlineMs: 60_000 };
    const entries = [{ id: 'one', text: 'left behind', metadata: [] }];
    await indexes.during(tenant, 0, (client) => client.upsert('a', entries, floats(1), options));
    const writing = call(guest, 'upsert', 'a', [entry('two')], floats(1));
    await guest.inferlet.release();
    await writing;
    const bytes = async () => Number(value(await call<IndexInfo>(inferlet(undefined, tenant), 'stats', 'a')).bytes);
    await eventually(async () => (await usedBytes(tenant)) === (await bytes()), 'the sum is known');
  });

  it('counts the bytes of a write that failed after it had taken effect', async (t) => {
    const tenant = 'unlucky';
    const guest = inferlet(undefined, tenant);
    await limitTo(tenant, 1e9);
    value(await call(guest, 'create', 'a', 1, 'cosine'));
    value(await call(guest, 'upsert', 'a', [entry('one'), entry('two')], floats(1, 1)));
    // The host deletes in several transactions. On a full disk, a later one may fail after earlier ones took effect.
    const { delete: deleteEntries } = IndexClient.prototype;
    t.mock.method(IndexClient.prototype, 'delete', async function (this: IndexClient, ...args: DeleteArguments) {
      await deleteEntries.apply(this, args);
      throw new IndexError('internal', 'database or disk is full');
    });
    assert.equal(await failure(guest, 'delete-entries', 'a', ['one', 'two']), 'internal');
    await eventually(async () => (await usedBytes(tenant)) === 0, 'the sum is known');
  });

  it('orders the sums of bytes by the sequence of the index host, not by clocks', async () => {
    const tenant = 'timeless';
    const guest = inferlet(undefined, tenant);
    const { store, indexBytes } = scheduler;
    const key = store.keys.indexSum(tenant);
    await limitTo(tenant, 1e10);
    // An earlier release stored this while the clock was an hour ahead.
    await store.redis.hset(key, { bytes: 2 ** 30, at: (Date.now() + 3_600_000) * 1000 });
    assert.equal(await usedBytes(tenant), 2 ** 30);
    value(await call(guest, 'create', 'a', 1, 'cosine'));
    value(await call(guest, 'upsert', 'a', [entry('one')], floats(1)));
    const stats = async () => value(await call<IndexInfo>(guest, 'stats', 'a'));
    assert.equal(await usedBytes(tenant), Number((await stats()).bytes));

    // `life` identifies one run of the index host; `sequence` orders the sums of that run.
    const life = (await store.redis.hget(key, 'life')) ?? assert.fail();
    const note = (bytes: number, sequence: number) => indexBytes.note(tenant, { bytes, life, sequence });
    await note(2 ** 30, 1000);
    await note(7, 999);
    assert.equal(await usedBytes(tenant), 2 ** 30, 'the note of an earlier sum came later');
    await host.kill();
    await host.start();
    value(await call(guest, 'drop-index', 'a'));
    assert.equal(await usedBytes(tenant), 0, 'the index host has started again');
    await note(7, 1001);
    assert.equal(await usedBytes(tenant), 0, 'the note of the earlier run came later');
  });

  it('fails with `unavailable` when the index host dies during a call, and works again after its restart', async () => {
    const guest = inferlet();
    value(await call(guest, 'create', 'lasting', 2, 'cosine'));
    value(await call(guest, 'upsert', 'lasting', [entry('one')], floats(1, 0)));
    const calls = Array.from({ length: 8 }, () => failure(guest, 'query', 'lasting', floats(1, 0), undefined, [], 1));
    await host.kill();
    for (const outcome of await Promise.all(calls)) assert.ok(['ok', 'unavailable'].includes(outcome), outcome);
    await host.start();
    assert.equal(value(await query(guest, 'lasting', floats(1, 0))).length, 1);
  });

  it('closes no connection with a call under way, however many tenants have calls', async () => {
    const { promise, resolve: release } = Promise.withResolvers<void>();
    const options = { signal: new AbortController().signal, deadlineMs: 60_000 };
    const tenants = Array.from({ length: 80 }, (_, i) => `crowd${i}`);
    // Each call waits before it sends its request, as an upsert first waits for Redis.
    const calls = tenants.map((tenant) =>
      indexes.during(tenant, 0, async (client) => {
        await promise;
        return client.list(options);
      }),
    );
    const extra = indexes.during('extra', 0, (client) => client.list(options));
    assert.deepEqual(await extra, []);
    release();
    for (const list of await Promise.all(calls)) assert.deepEqual(list, []);
  });

  it('ends calls of a stopped inferlet, and refuses calls on a machine that does not have the indexes', async () => {
    const stopped = inferlet();
    stopped.inferlet.stop({ tag: 'terminated', val: 'enough' });
    assert.equal(await failure(stopped, 'list-indexes'), 'terminated');
    const { socket } = host;
    const [east, west] = ['east', 'west'].map(
      (machine) => new Indexes({ socket, sums: scheduler.indexBytes, machine }),
    );
    assert.equal(await failure(inferlet(undefined, 'default', { indexes: east! }), 'list-indexes'), 'ok');
    assert.equal(await failure(inferlet(undefined, 'default', { indexes: west! }), 'list-indexes'), 'unsupported');
    east!.close();
  });
});
