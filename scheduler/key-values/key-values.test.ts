import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { StoreError } from '../store/errors.ts';
import { Store } from '../store/store.ts';
import { TestRedis } from '../testing/redis.ts';
import { KeyValues, type KeyValuesOptions } from './key-values.ts';

/** Bytes of a version. A tenant's bytes include them for each value. */
const VERSION_BYTES = 8;

const bytes = (text: string) => Buffer.from(text);
const byBytes = (a: string, b: string) => Buffer.from(a).compare(Buffer.from(b));

describe('key-values', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** A separate store whose clock the test sets. */
  function makeStore(options: KeyValuesOptions = {}) {
    const clock = { now: Date.now() };
    // A busy machine takes seconds for the 2,500 writes that a test makes at once.
    const deadlineMs = 60_000;
    const store = new Store(redis.connect(), { prefix: `kv-${randomUUID()}`, clock: () => clock.now, deadlineMs });
    return { store, clock, values: new KeyValues(store, options) };
  }

  test('any sequence of calls has the results of a plain map, also when values expire and the store is full', async () => {
    const MAX_BYTES = 160;
    const MAX_KEYS = 6;
    const key = fc.constantFrom('a', 'a/b', 'a/c', 'ab', 'é', '€/1', '😀', 'z\n0');
    const operation = fc.oneof(
      fc.record({
        do: fc.constant('set' as const),
        key,
        size: fc.nat(40),
        ttl: fc.option(fc.integer({ min: 1, max: 5 })),
      }),
      // A compare-and-set. If it is `stale`, it expects a version that the key does not have.
      fc.record({ do: fc.constant('swap' as const), key, size: fc.nat(40), stale: fc.boolean() }),
      fc.record({ do: fc.constant('delete' as const), key }),
      fc.record({ do: fc.constant('read' as const), key }),
      fc.record({
        do: fc.constant('list' as const),
        prefix: fc.constantFrom('', 'a', 'a/', '€', 'x'),
        after: fc.option(key, { nil: undefined }),
        limit: fc.integer({ min: 1, max: 5 }),
      }),
      fc.record({ do: fc.constant('pass' as const), seconds: fc.integer({ min: 1, max: 4 }) }),
      fc.record({ do: fc.constant('sweep' as const) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { maxLength: 60, size: 'max' }), async (operations) => {
        const { store, clock, values } = makeStore({ maxBytes: MAX_BYTES, maxKeys: MAX_KEYS });
        const model = new Map<string, { value: string; version: bigint; until: number }>();
        let highest = 0n;
        const live = () => [...model].filter(([, { until }]) => until > clock.now);
        const used = () =>
          live().reduce((sum, [name, { value }]) => sum + Buffer.byteLength(name) + VERSION_BYTES + value.length, 0);
        for (const [i, step] of operations.entries()) {
          for (const [name, { until }] of model) if (until <= clock.now) model.delete(name);
          if (step.do === 'set' || step.do === 'swap') {
            const value = String.fromCharCode(97 + (i % 26)).repeat(step.size);
            const before = model.get(step.key);
            const isStale = step.do === 'swap' && step.stale;
            const currentVersion = before?.version ?? null;
            const swapVersion = isStale ? (currentVersion ?? 0n) + 1n : currentVersion;
            const expected = step.do === 'set' ? undefined : swapVersion;
            const ttl = step.do === 'set' ? step.ttl : null;
            const outcome = await values.write('t', step.key, bytes(value), {
              ...(expected !== undefined && { expected }),
              ...(ttl !== null && { timeToLiveSeconds: ttl }),
            });
            if (isStale) {
              assert.equal(outcome.kind, 'conflict');
              continue;
            }
            const added = before
              ? value.length - before.value.length
              : Buffer.byteLength(step.key) + VERSION_BYTES + value.length;
            const fits = added <= 0 || (used() + added <= MAX_BYTES && live().length + (before ? 0 : 1) <= MAX_KEYS);
            assert.equal(outcome.kind, fits ? 'written' : 'full');
            if (outcome.kind !== 'written') continue;
            assert.ok(outcome.version > highest, 'versions grow');
            highest = outcome.version;
            const keptUntil = step.do === 'swap' ? before?.until : undefined;
            const until = ttl === null ? (keptUntil ?? Number.POSITIVE_INFINITY) : clock.now + ttl * 1000;
            model.set(step.key, { value, version: outcome.version, until });
          } else if (step.do === 'delete') {
            assert.equal(await values.delete('t', step.key), model.delete(step.key));
          } else if (step.do === 'read') {
            const found = await values.get('t', step.key);
            const known = model.get(step.key);
            assert.deepEqual(
              found && { value: Buffer.from(found.value).toString(), version: found.version },
              known ? { value: known.value, version: known.version } : null,
            );
            assert.equal(await values.exists('t', step.key), known !== undefined);
          } else if (step.do === 'list') {
            const { prefix, after, limit } = step;
            const names = [...model.keys()].sort(byBytes).filter((name) => name.startsWith(prefix));
            const following = names.filter((name) => after === undefined || byBytes(name, after) > 0);
            assert.deepEqual(await values.list('t', prefix, after, limit), following.slice(0, limit));
          } else if (step.do === 'pass') clock.now += step.seconds * 1000;
          else await values.sweep();
        }
        // Past the longest time to live, 5 s.
        clock.now += 10_000;
        await values.sweep();
        for (const [name, { until }] of model) if (until <= clock.now) model.delete(name);
        const { keys } = store;
        const counted = await store.call((client) => client.hget(keys.storedUsage('t'), 'bytes'));
        assert.equal(Number(counted ?? 0), used(), 'the counted bytes are the stored bytes');
        assert.equal(await store.call((client) => client.hlen(keys.storedValues('t'))), model.size);
        assert.equal(await store.call((client) => client.zcard(keys.storedNames('t'))), model.size);
        assert.equal(await store.call((client) => client.zcard(keys.storedExpiries('t'))), 0);
        assert.equal(await store.call((client) => client.zcard(keys.storedSweeps)), 0);
        store.redis.disconnect();
      }),
      { seed: 20261107, numRuns: 60 },
    );
  });

  test('concurrent increments by compare-and-set lose no update', async () => {
    const { values } = makeStore();
    const PROCESSES = 8;
    const INCREMENTS = 10;
    const add = async () => {
      for (;;) {
        const found = await values.get('t', 'count');
        const next = String(Number(found ? Buffer.from(found.value).toString() : 0) + 1);
        const outcome = await values.write('t', 'count', bytes(next), { expected: found?.version ?? null });
        if (outcome.kind === 'written') return;
      }
    };
    await Promise.all(
      Array.from({ length: PROCESSES }, async () => {
        for (let i = 0; i < INCREMENTS; i++) await add();
      }),
    );
    const found = await values.get('t', 'count');
    assert.equal(Buffer.from(found?.value ?? []).toString(), String(PROCESSES * INCREMENTS));
    assert.equal(found?.version, BigInt(PROCESSES * INCREMENTS));
  });

  test('a version is never reused, so compare-and-set fails on a key that was deleted and written again', async () => {
    const { values } = makeStore();
    const first = await values.write('t', 'k', bytes('x'));
    assert.equal(first.kind, 'written');
    await values.delete('t', 'k');
    await values.write('t', 'k', bytes('y'), { expected: null });
    const expected = first.kind === 'written' ? first.version : 0n;
    assert.equal((await values.write('t', 'k', bytes('z'), { expected })).kind, 'conflict');
  });

  test('a list skips any number of expired keys and shows only the keys of its tenant', async () => {
    const { values, clock } = makeStore();
    // More keys than two calls of the list script read.
    const expiring = Array.from({ length: 2500 }, (_, i) => `k${String(i).padStart(5, '0')}`);
    await Promise.all(expiring.map((key) => values.write('t', key, bytes(''), { timeToLiveSeconds: 1 })));
    await values.write('t', 'k9', bytes('stays'));
    clock.now += 2000;
    assert.deepEqual(await values.list('t', 'k', undefined, 1000), ['k9']);
    assert.deepEqual(await values.list('other', '', undefined, 10), []);
    assert.equal(await values.get('other', 'k9'), null);
  });

  test('a write or delete that the connection sends twice takes effect once', async () => {
    const { store, values } = makeStore();
    type Sent = { name: string; args: unknown[] };
    const sent: Sent[] = [];
    const send = store.redis.sendCommand.bind(store.redis);
    store.redis.sendCommand = (command, ...rest) => {
      sent.push({ name: command.name, args: [...command.args] });
      return send(command, ...rest);
    };
    const sendAgain = ({ name, args }: Sent) => store.redis.call(name, ...(args as string[]));
    const valueOfK = async () => Buffer.from((await values.get('t', 'k'))?.value ?? []).toString();
    await values.write('t', 'k', bytes('1'));
    const write = sent.at(-1);
    assert.ok(write);
    await values.write('t', 'k', bytes('2'));
    await sendAgain(write);
    assert.equal(await valueOfK(), '2');
    assert.ok(await values.delete('t', 'k'));
    const deletion = sent.at(-1);
    assert.ok(deletion);
    await values.write('t', 'k', bytes('3'));
    assert.equal(await sendAgain(deletion), 1, 'the first reply');
    assert.equal(await valueOfK(), '3');
  });

  test('a full Redis refuses a write before the script drops expired values', async () => {
    const { store, clock, values } = makeStore();
    await values.write('t', 'k', bytes('1'), { timeToLiveSeconds: 1 });
    clock.now += 2000;
    await store.redis.config('SET', 'maxmemory', '1');
    try {
      await assert.rejects(
        values.write('t', 'other', bytes('2')),
        (error) => error instanceof StoreError && error.full,
      );
      assert.equal(await store.redis.hlen(store.keys.storedValues('t')), 1);
    } finally {
      await store.redis.config('SET', 'maxmemory', '0');
    }
    assert.equal((await values.write('t', 'other', bytes('2'))).kind, 'written');
  });
});
