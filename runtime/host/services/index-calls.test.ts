import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { IndexClient } from '#index-host/protocol/client.ts';
import {
  MAX_CALL_BYTES,
  MAX_DIMENSIONS,
  MAX_ENTRIES_PER_CALL,
  MAX_MATCHES,
  MAX_NAME,
} from '#index-host/protocol/messages.ts';
import { IndexError } from '#index-host/protocol/types.ts';
import type { Grants } from '#scheduler/functions/grants.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { eventually, openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import type { Condition, IndexEntry, IndexInfo, Match } from '#wit/generated/host.ts';
import { TestIndexHost } from '../../testing/index-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import { Indexes } from './indexes.ts';

type DeleteArguments = Parameters<IndexClient['delete']>;

const NOTE = { author: 'test', reason: 'a test' };
/** Maximum matches of the tests' queries. */
const QUERY_LIMIT = 5;

describe('the interface `index`', () => {
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
  /** Makes a call. Returns the code of its error, or `ok` without an error. */
  const codeOf = async (guest: TestInferlet, name: string, ...args: unknown[]) => {
    const outcome = await call<unknown>(guest, name, ...args);
    return outcome.tag === 'err' ? outcome.val.tag : 'ok';
  };
  /** An entry with two fields that depend on the length of its id. */
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
    call<readonly Match[]>(guest, 'query', name, vector, text, filter, QUERY_LIMIT);
  const limitTo = (tenant: string, limit: number) =>
    scheduler.quotas.set(tenant, { quota: 'storage-bytes', limit, function: null, until: null }, NOTE);
  /** Bytes that the tenant uses of its storage quota. The tenant must have such a quota. */
  const usedBytes = async (tenant: string) =>
    (await scheduler.quotas.status(tenant, null)).find(({ quota }) => quota === 'storage-bytes')?.used;

  it('keeps entries for all functions of a tenant, and finds them by vector, text and fields', async () => {
    const [writer, reader, stranger] = [inferlet(), inferlet({ store: 'read' }), inferlet(undefined, 'stranger')];
    await limitTo('default', 1e9);
    value(await call(writer, 'create', 'places', 2, 'cosine'));
    const vectors = floats(0, 1, 1, 0);
    const writing = call<undefined>(writer, 'upsert', 'places', [entry('north', 'cold wind'), entry('east')], vectors);
    // A guest may change its memory while a call is under way; the call has copied the vectors.
    vectors.fill(9);
    value(await writing);
    const [best, second] = value(await query(reader, 'places', floats(0.1, 1)));
    assert.deepEqual(best?.entry, entry('north', 'cold wind'));
    assert.ok(best.score > 0.9 && second?.entry.id === 'east');
    const notLong = { field: 'long', comparison: 'not-equal', values: [{ tag: 'boolean', val: true }] } as const;
    assert.deepEqual(
      value(await query(reader, 'places', floats(0, 1), undefined, [notLong])).map((match) => match.entry.id),
      ['east'],
    );
    assert.deepEqual(
      value(await query(reader, 'places', undefined, 'a COLD day')).map((match) => match.entry.id),
      ['north'],
    );
    assert.equal(await codeOf(stranger, 'stats', 'places'), 'not-found');
    assert.deepEqual(value(await call(stranger, 'list-indexes')), []);
    const stats = value(await call<IndexInfo>(reader, 'stats', 'places'));
    assert.deepEqual([stats.entries, stats.dimensions, stats.metric], [2n, 2, 'cosine']);
    assert.equal(await usedBytes('default'), Number(stats.bytes));
    assert.equal(value(await call(writer, 'delete-entries', 'places', ['east', 'west'])), 1, 'only `east` exists');
    assert.equal(value(await call(writer, 'drop-index', 'places')), true);
    assert.equal(value(await call(writer, 'drop-index', 'places')), false);
    assert.equal(await usedBytes('default'), 0);
  });

  it('has the limits that the contract states', () => {
    // wit/index.wit promises these numbers to guests.
    assert.deepEqual([MAX_NAME, MAX_DIMENSIONS, MAX_ENTRIES_PER_CALL, MAX_MATCHES], [128, 4096, 256, 256]);
    assert.equal(MAX_CALL_BYTES, 4 * 1024 * 1024);
  });

  it('refuses calls without the grant, with invalid arguments, or over a limit', async () => {
    const [ungranted, reader, writer] = [inferlet({}), inferlet({ store: 'read' }), inferlet()];
    assert.equal(await codeOf(ungranted, 'list-indexes'), 'unsupported');
    assert.equal(await codeOf(ungranted, 'query', 'a', floats(1), undefined, [], 1), 'unsupported');
    assert.equal(await codeOf(reader, 'create', 'a', 2, 'cosine'), 'unsupported');
    assert.equal(await codeOf(reader, 'upsert', 'a', [], floats()), 'unsupported');
    assert.equal(await codeOf(reader, 'drop-index', 'a'), 'unsupported');
    for (const name of ['', '../a', '.a', 'a/b', 'x'.repeat(MAX_NAME + 1)]) {
      assert.equal(await codeOf(writer, 'create', name, 2, 'cosine'), 'invalid-argument', name);
    }
    assert.equal(await codeOf(writer, 'create', 'a', 0, 'cosine'), 'invalid-argument');
    assert.equal(await codeOf(writer, 'create', 'a', MAX_DIMENSIONS + 1, 'cosine'), 'invalid-argument');
    value(await call(writer, 'create', 'a', 2, 'cosine'));
    assert.equal(await codeOf(writer, 'create', 'a', 2, 'euclidean'), 'invalid-argument');
    assert.equal(await codeOf(writer, 'upsert', 'a', [entry('x')], floats(1)), 'invalid-argument');
    assert.equal(await codeOf(writer, 'upsert', 'a', [entry('x')], floats(1, Number.NaN)), 'invalid-argument');
    assert.equal(await codeOf(writer, 'upsert', 'a', [entry('')], floats(1, 1)), 'invalid-argument');
    const tooMany = Array.from({ length: MAX_ENTRIES_PER_CALL + 1 }, (_, i) => entry(`${i}`));
    const vectorsOfAll = new Float32Array(2 * tooMany.length);
    assert.equal(await codeOf(writer, 'upsert', 'a', tooMany, vectorsOfAll), 'limit-exceeded');
    const tooLong = new Float32Array(MAX_CALL_BYTES / Float32Array.BYTES_PER_ELEMENT + 1);
    assert.equal(await codeOf(writer, 'upsert', 'a', [entry('x')], tooLong), 'limit-exceeded');
    assert.equal(await codeOf(writer, 'query', 'a', undefined, undefined, [], 1), 'invalid-argument');
    assert.equal(await codeOf(writer, 'query', 'a', floats(), 'cold', [], 1), 'invalid-argument');
    assert.equal(await codeOf(writer, 'query', 'a', floats(1, 1), undefined, [], MAX_MATCHES + 1), 'invalid-argument');
    // Booleans have no order.
    const order = { field: 'long', comparison: 'less', values: [{ tag: 'boolean', val: true }] };
    assert.equal(await codeOf(writer, 'query', 'a', floats(1, 1), undefined, [order], 1), 'invalid-argument');
    assert.equal(value(await call<IndexInfo>(writer, 'stats', 'a')).entries, 0n);
  });

  it('shares the storage quota with other content; a refused write changes nothing', async () => {
    const tenant = 'bounded';
    const guest = inferlet(undefined, tenant);
    await limitTo(tenant, 1e9);
    value(await call(guest, 'create', 'a', 2, 'cosine'));
    value(await call(guest, 'upsert', 'a', [entry('one')], floats(1, 0)));
    const bytes = (await usedBytes(tenant)) ?? 0;
    // 100 bytes are left. They are too few for a second entry, and enough for a value of 50 bytes, but not for another one of 60.
    await limitTo(tenant, bytes + 100);
    assert.equal(await codeOf(guest, 'upsert', 'a', [entry('two')], floats(0, 1)), 'limit-exceeded');
    assert.equal((await scheduler.keyValues.write(tenant, 'k', new Uint8Array(50))).kind, 'written');
    await assert.rejects(scheduler.keyValues.write(tenant, 'other', new Uint8Array(60)), /storage-bytes/);
    assert.deepEqual(
      value(await query(guest, 'a', floats(0, 1))).map((match) => match.entry.id),
      ['one'],
    );
    // The replacement of an entry by one of the same size needs no further bytes, so the quota allows it.
    value(await call(guest, 'upsert', 'a', [entry('one')], floats(0, 1)));
    // The deletion of the entry makes room for the value that was refused.
    value(await call(guest, 'delete-entries', 'a', ['one']));
    assert.equal((await scheduler.keyValues.write(tenant, 'other', new Uint8Array(60))).kind, 'written');
  });

  it('counts the bytes of a write when the inferlet ends before the answer', async () => {
    const tenant = 'hasty';
    const guest = inferlet(undefined, tenant);
    await limitTo(tenant, 1e9);
    value(await call(guest, 'create', 'a', 1, 'cosine'));
    // This write does not go through a guest's call, so Redis learns nothing of its bytes.
    const options = { signal: new AbortController().signal, deadlineMs: 60_000 };
    const entries = [{ id: 'one', text: 'left behind', metadata: [] }];
    await indexes.during(tenant, 0, (client) => client.upsert('a', entries, floats(1), options));
    const writing = call(guest, 'upsert', 'a', [entry('two')], floats(1));
    await guest.inferlet.release();
    await writing;
    const storedBytes = async () =>
      Number(value(await call<IndexInfo>(inferlet(undefined, tenant), 'stats', 'a')).bytes);
    await eventually(
      async () => (await usedBytes(tenant)) === (await storedBytes()),
      'Redis has the bytes of both writes',
    );
  });

  it('counts the bytes of a write that fails after it has taken effect', async (t) => {
    const tenant = 'unlucky';
    const guest = inferlet(undefined, tenant);
    await limitTo(tenant, 1e9);
    value(await call(guest, 'create', 'a', 1, 'cosine'));
    value(await call(guest, 'upsert', 'a', [entry('one'), entry('two')], floats(1, 1)));
    // The index host may delete in several transactions. On a full disk, a transaction may fail after earlier ones took effect. Here, the deletion
    // fails after all of its transactions.
    const { delete: deleteEntries } = IndexClient.prototype;
    t.mock.method(IndexClient.prototype, 'delete', async function (this: IndexClient, ...args: DeleteArguments) {
      await deleteEntries.apply(this, args);
      throw new IndexError('internal', 'database or disk is full');
    });
    assert.equal(await codeOf(guest, 'delete-entries', 'a', ['one', 'two']), 'internal');
    await eventually(async () => (await usedBytes(tenant)) === 0, 'Redis knows that no bytes are left');
  });

  it('orders the reported sums of index bytes by the sequence numbers of the index host, not by clocks', async () => {
    const tenant = 'timeless';
    const guest = inferlet(undefined, tenant);
    const { store, indexBytes } = scheduler;
    const key = store.keys.indexSum(tenant);
    await limitTo(tenant, 1e10);
    // This record has a time and no sequence number. Although this time is an hour ahead, the next sum replaces the record.
    await store.redis.hset(key, { bytes: 2 ** 30, at: (Date.now() + 3_600_000) * 1000 });
    assert.equal(await usedBytes(tenant), 2 ** 30);
    value(await call(guest, 'create', 'a', 1, 'cosine'));
    value(await call(guest, 'upsert', 'a', [entry('one')], floats(1)));
    const stats = async () => value(await call<IndexInfo>(guest, 'stats', 'a'));
    assert.equal(await usedBytes(tenant), Number((await stats()).bytes));

    // `life` identifies one run of the index host (here the first one); `sequence` orders the sums of one run.
    const life = (await store.redis.hget(key, 'life')) ?? assert.fail();
    const note = (bytes: number, sequence: number) => indexBytes.note(tenant, { bytes, life, sequence });
    await note(2 ** 30, 1000);
    await note(7, 999);
    assert.equal(await usedBytes(tenant), 2 ** 30, 'a sum with a smaller sequence number is not stored');
    await host.kill();
    await host.start();
    value(await call(guest, 'drop-index', 'a'));
    assert.equal(await usedBytes(tenant), 0, 'a sum of a new run replaces that of the run before');
    await note(7, 1001);
    assert.equal(await usedBytes(tenant), 0, 'a sum of the run before is not stored');
  });

  it('fails with `unavailable` when the index host dies during a call, and works again after its restart', async () => {
    const guest = inferlet();
    value(await call(guest, 'create', 'lasting', 2, 'cosine'));
    value(await call(guest, 'upsert', 'lasting', [entry('one')], floats(1, 0)));
    // A query that ends before the index host dies succeeds.
    const codes = Array.from({ length: 8 }, () => codeOf(guest, 'query', 'lasting', floats(1, 0), undefined, [], 1));
    await host.kill();
    for (const code of await Promise.all(codes)) assert.ok(['ok', 'unavailable'].includes(code), code);
    await host.start();
    assert.equal(value(await query(guest, 'lasting', floats(1, 0))).length, 1);
  });

  it('keeps the connections of calls under way open when more than 64 tenants have calls', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const options = { signal: new AbortController().signal, deadlineMs: 60_000 };
    const tenants = Array.from({ length: 80 }, (_, i) => `crowd${i}`);
    // Each call waits before it sends its request. An upsert does the same: it first reads the tenant's quota from Redis.
    const calls = tenants.map((tenant) =>
      indexes.during(tenant, 0, async (client) => {
        await released;
        return client.list(options);
      }),
    );
    // The end of this call closes idle connections.
    assert.deepEqual(await indexes.during('extra', 0, (client) => client.list(options)), []);
    release();
    for (const list of await Promise.all(calls)) assert.deepEqual(list, []);
  });

  it('refuses calls of a stopped inferlet, and calls on a machine that does not have the indexes', async () => {
    const stopped = inferlet();
    stopped.inferlet.stop({ tag: 'terminated', val: 'enough' });
    assert.equal(await codeOf(stopped, 'list-indexes'), 'terminated');
    const { socket } = host;
    const [east, west] = ['east', 'west'].map(
      (machine) => new Indexes({ socket, sums: scheduler.indexBytes, machine }),
    );
    // The first machine that calls has the indexes from then on.
    assert.equal(await codeOf(inferlet(undefined, 'default', { indexes: east! }), 'list-indexes'), 'ok');
    assert.equal(await codeOf(inferlet(undefined, 'default', { indexes: west! }), 'list-indexes'), 'unsupported');
    east!.close();
  });
});
