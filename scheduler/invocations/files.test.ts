import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { Channels } from '../store/channels.ts';
import { durably } from '../store/testing/lost-writes.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Files } from './files.ts';
import { MAX_FILE_BYTES, MAX_FILES } from './types.ts';

const TYPE = 'application/octet-stream';
/** Retention of files after the end of their invocation. */
const FILES_MS = 60_000;

describe('files', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now = Date.now();
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    // A busy machine takes seconds to store the 80 MiB that a test sends at once.
    const deadlineMs = 60_000;
    scheduler = openTestScheduler(redis, { retention: { filesMs: FILES_MS }, clock: () => now, deadlineMs });
  });
  after(async () => {
    await scheduler.close();
    await redis.stop();
  });

  async function beginOne() {
    const record = submission();
    await scheduler.invocations.create(record);
    const begun = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in begun);
    return { id: record.id, ...begun };
  }

  test('runtime and client store a file unchanged, and a second put replaces its content', async () => {
    const { id, epoch } = await beginOne();
    const content = new Uint8Array([0, 255, 10, 13]);
    assert.equal(await scheduler.files.put(id, 'b', TYPE, content), 'ok');
    assert.equal(await scheduler.files.put(id, 'a', 'text/plain', new Uint8Array(), epoch), 'ok');
    const stored = await scheduler.files.get(id, 'b');
    assert.deepEqual([stored?.mediaType, [...(stored?.content ?? [])]], [TYPE, [...content]]);
    assert.equal(await scheduler.files.put(id, 'b', 'image/png', new Uint8Array(2)), 'ok');
    assert.deepEqual(await scheduler.files.list(id), [
      { name: 'a', mediaType: 'text/plain', size: 0 },
      { name: 'b', mediaType: 'image/png', size: 2 },
    ]);
    assert.equal(await scheduler.files.get(id, 'c'), null);
    assert.equal(await scheduler.files.put('nobody', 'a', TYPE, content), 'unknown');
    assert.equal(await scheduler.files.put(id, 'a', TYPE, content, epoch - 1), 'ended', 'an earlier attempt is over');
    for (const [name, type, size] of [
      ['', TYPE, 0],
      ['a/b', TYPE, 0],
      ['a', 'x', 0],
      ['a', TYPE, MAX_FILE_BYTES + 1],
    ] as const) {
      await assert.rejects(scheduler.files.put(id, name, type, new Uint8Array(size)), { code: 'invalid-argument' });
    }
  });

  test('files of an invocation are bounded in number and bytes under concurrent puts', async () => {
    const { id } = await beginOne();
    const putOutcomes = await Promise.all(
      Array.from({ length: MAX_FILES + 5 }, (_, i) => scheduler.files.put(id, `f${i}`, TYPE, new Uint8Array(1))),
    );
    assert.equal(putOutcomes.filter((outcome) => outcome === 'ok').length, MAX_FILES);
    assert.equal(putOutcomes.filter((outcome) => outcome === 'too-many').length, 5);
    assert.equal(await scheduler.files.put(id, 'f0', TYPE, new Uint8Array(2)), 'ok', 'a stored file can be replaced');
    const { id: large } = await beginOne();
    const largestContent = new Uint8Array(MAX_FILE_BYTES);
    const outcomes = await Promise.all(
      ['a', 'b', 'c', 'd', 'e'].map((name) => scheduler.files.put(large, name, TYPE, largestContent)),
    );
    assert.deepEqual(outcomes.toSorted(), ['ok', 'ok', 'ok', 'ok', 'too-large']);
    const [storedFile] = await scheduler.files.list(large);
    assert.equal(await scheduler.files.put(large, storedFile?.name ?? '', TYPE, new Uint8Array(1)), 'ok');
    assert.equal(await scheduler.files.put(large, 'f', TYPE, new Uint8Array(MAX_FILE_BYTES - 1)), 'ok');
    assert.equal(await scheduler.files.put(large, 'g', TYPE, new Uint8Array(1)), 'too-large');
    await scheduler.invocations.fail(large, 'internal', 'over');
  });

  test('appears() resolves when the file is stored, also after a restart, and when the inbox closes', async () => {
    // `restart` waits only a limited time until Redis has written to its disk; `durably` waits for it in any case.
    const { id } = await durably(redis, beginOne);
    const ending = new AbortController();
    const wait = (name: string) => scheduler.files.appears(id, name, ending.signal);
    const [first, second, third] = [wait('a'), wait('b'), wait('c')];
    await durably(redis, () => scheduler.files.put(id, 'a', TYPE, new Uint8Array(1)));
    assert.equal(await first, true);
    await redis.restart();
    await scheduler.files.put(id, 'b', TYPE, new Uint8Array(1));
    assert.equal(await second, true);
    await scheduler.inbox.close(id);
    assert.equal(await third, false);
    assert.equal(await wait('a'), true, 'the file is stored already');
    const { id: other } = await beginOne();
    const aborted = scheduler.files.appears(other, 'a', ending.signal);
    ending.abort();
    assert.equal(await aborted, false);
  });

  test('files of ended children use the budget of their family; expired files free the budget of their tenant', async () => {
    const channels = new Channels(redis.connect());
    const files = new Files(scheduler.store, channels, { familyBytes: 1000, tenantBytes: 1500 });
    const tenant = 'bounded';
    const begin = async (owner = tenant) => {
      const record = submission({ tenant: owner });
      await scheduler.invocations.create(record);
      const begun = await beginAttempt(scheduler, record.id, 'r1');
      assert.ok('epoch' in begun);
      return { ...record, ...begun };
    };
    const root = await begin();
    const child = async (parent: { id: string; epoch: number }) => {
      const record = { ...submission({ tenant }), parent: parent.id, parentEpoch: parent.epoch, root: root.id };
      const begun = await scheduler.invocations.beginChild({ ...record, arrival: 1, runtimeId: 'r1' }, record.id);
      assert.ok('epoch' in begun);
      return { ...record, ...begun };
    };
    // A file also counts its name and its description, here about 60 bytes.
    const put = (id: string, bytes: number, name = 'f') => files.put(id, name, TYPE, new Uint8Array(bytes));
    try {
      const [first, second] = [await child(root), await child(root)];
      const grandchild = await child(first);
      assert.equal(await put(grandchild.id, 600), 'ok');
      await scheduler.invocations.fail(grandchild.id, 'internal', 'over');
      assert.equal(await put(second.id, 600), 'family-full');
      assert.equal(await put(root.id, 200), 'ok');
      assert.equal(await put(root.id, 500), 'family-full');
      assert.equal(await put(root.id, 10), 'ok', 'replaced content frees its bytes');
      assert.equal(await put(second.id, 100), 'ok');

      const other = await begin();
      assert.equal(await put(other.id, 700), 'tenant-full');
      assert.equal(await put((await begin('neighbour')).id, 700), 'ok', 'another tenant has its own budget');
      now += FILES_MS;
      assert.equal(await put(other.id, 700), 'ok', 'the file of the grandchild has expired');
      const { redis: client, keys } = scheduler.store;
      for (const { id } of [first, second, root, other]) await scheduler.invocations.fail(id, 'internal', 'over');
      const last = await begin();
      now += FILES_MS;
      assert.equal(await put(last.id, 1), 'ok');
      assert.equal(
        await client.hlen(keys.fileUsage(tenant)),
        2,
        'the counts left are the total of the tenant and that of the last invocation',
      );
      assert.equal(await client.zcard(keys.fileExpiries(tenant)), 0);
      assert.equal(
        await client.hget(keys.fileUsage(tenant), 'bytes'),
        await client.hget(keys.fileUsage(tenant), last.id),
      );
    } finally {
      channels.close();
    }
  });

  test('files expire with the retention, and none can be added after the end', async () => {
    const { id } = await beginOne();
    await scheduler.files.put(id, 'a', TYPE, new Uint8Array(1));
    await scheduler.invocations.fail(id, 'internal', 'over');
    assert.equal(await scheduler.files.put(id, 'b', TYPE, new Uint8Array(1)), 'ended');
    assert.ok(await scheduler.files.get(id, 'a'));
    const { redis: client, keys } = scheduler.store;
    for (const key of [keys.files(id), keys.fileContents(id)]) {
      const leftMs = await client.pttl(key);
      assert.ok(leftMs > 0 && leftMs <= FILES_MS, `${key} expires in ${leftMs} ms`);
      // Delete the key as its expiry would.
      await client.del(key);
    }
    assert.equal(await scheduler.files.get(id, 'a'), null);
    assert.deepEqual(await scheduler.files.list(id), []);
  });
});
