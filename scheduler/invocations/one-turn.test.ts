import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { QuotaExceeded } from '../quotas/exceeded.ts';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { beginAttempt, offer, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { NewEvent, TerminalEvent } from './types.ts';

const NOW = 1_800_000_000_000;
const TENANTS = ['a', 'b'] as const;

let redis: TestRedis;
before(async () => {
  redis = await TestRedis.start();
});
after(() => redis.stop());

/** Keys of the data of tenants and invocations. */
const TENANT_KEYS =
  /^(invocation|account|listing|deadlines|arrivals|waiting|idempotency|admission:(ledger|learned|state))/;
/** Like `TENANT_KEYS`, without the keys that depend on the order of starts: tenants whose invocations come together take turns by name. */
const KEYS_WITHOUT_ORDER = /^(invocation|account|listing|deadlines|arrivals|idempotency)/;

/** The stored values that must be equal after both ways of `bothWays`. */
async function dump({ store }: Scheduler, keyPattern = TENANT_KEYS): Promise<Record<string, unknown>> {
  const { redis: client, keys } = store;
  const found: Record<string, unknown> = {};
  for (const key of (await client.keys(`${keys.prefix}:*`)).sort()) {
    const name = key.slice(keys.prefix.length + 1);
    if (!keyPattern.test(name)) continue;
    const type = await client.type(key);
    if (type === 'hash') {
      const fields = Object.entries(await client.hgetallBuffer(key));
      // Some values are MessagePack.
      found[name] = Object.fromEntries(fields.map(([field, value]) => [field, value.toString('latin1')]));
    } else if (type === 'zset') found[name] = await client.zrange(key, '0', '-1', 'WITHSCORES');
    else if (type === 'set') found[name] = (await client.smembers(key)).sort();
    else if (type === 'stream') found[name] = await client.xrange(key, '-', '+');
    else found[name] = await client.get(key);
    found[`${name} expires`] = (await client.pttl(key)) > 0;
  }
  return JSON.parse(JSON.stringify(found).replaceAll(keys.prefix, 'prefix')) as Record<string, unknown>;
}

/** Makes the same calls one after another, and all in one turn of the event loop; both must have the same answers and effects. */
async function bothWays<Call>(
  prepare: (scheduler: Scheduler) => Promise<(call: Call) => Promise<unknown>>,
  calls: readonly Call[],
  keyPattern = TENANT_KEYS,
): Promise<unknown[]> {
  const [apart, together] = await Promise.all(
    [false, true].map(async (isTogether) => {
      const scheduler = openTestScheduler(redis, { clock: () => NOW });
      const lease = await offer(scheduler, { slots: 2, memoryMb: 1000 });
      try {
        const make = await prepare(scheduler);
        const answers: unknown[] = [];
        const answer = async (call: Call) => make(call).catch((error: unknown) => failure(error));
        if (isTogether) answers.push(...(await Promise.all(calls.map(answer))));
        else for (const call of calls) answers.push(await answer(call));
        return { answers, stored: await dump(scheduler, keyPattern) };
      } finally {
        await lease.release();
        await scheduler.close();
      }
    }),
  );
  assert.deepEqual(together, apart);
  return together?.answers ?? [];
}

function failure(error: unknown): string {
  if (error instanceof QuotaExceeded) return `${error.code} ${error.message}`;
  if (error instanceof StoreError) return error.code;
  throw error;
}

test('submissions of one turn have the same outcomes and effects as submissions one after another', async () => {
  const request = fc.record({
    tenant: fc.constantFrom('a', 'a', 'a', 'b'),
    key: fc.constantFrom(undefined, undefined, undefined, undefined, undefined, undefined, 'k', 'l'),
    body: fc.constantFrom('x', 'y'),
    // 2,000 MiB are more than the 1,000 that the runtime offers.
    memoryMb: fc.constantFrom(64, 64, 64, 64, 64, 64, 64, 2000),
    // The tenant `nobody` has deployed no function.
    owner: fc.constantFrom(undefined, undefined, undefined, undefined, undefined, undefined, 'nobody'),
    // True for a submission with the id of the first one.
    again: fc.nat(7).map((n) => n === 0),
  });
  const requests = { 'requests-per-minute': fc.integer({ min: 1, max: 8 }) };
  const waiting = { 'waiting-invocations': fc.nat(2) };
  const running = { 'concurrent-invocations': fc.nat(3) };
  const limits = fc.oneof(
    fc.record(waiting),
    fc.record(requests),
    fc.record({ ...waiting, ...running }),
    fc.record({ ...requests, ...waiting, ...running }, { requiredKeys: [] }),
  );
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(request, { minLength: 4, maxLength: 8 }), limits, async (requested, quotas) => {
      const submissions = requested.map(({ tenant, key, body, memoryMb, owner, again }, i) => {
        const { limits: defaultLimits } = submission();
        const id = again && i > 0 ? 'i0' : `i${i}`;
        return submission({
          ...{ id, tenant, submittedAt: NOW, limits: { ...defaultLimits, memoryMb } },
          ...(key !== undefined && { idempotencyKey: key, fingerprint: body }),
          ...(owner !== undefined && { functionOwner: owner }),
        });
      });
      const answers = await bothWays(
        async (scheduler) => {
          await scheduler.quotas.setDefaults(quotas);
          return (one) => scheduler.invocations.create(one);
        },
        submissions,
        KEYS_WITHOUT_ORDER,
      );
      for (const answer of answers) seen.add(String(typeof answer === 'string' ? answer.split(' ')[0] : 'answered'));
    }),
    { seed: 20261122, numRuns: process.env.PIE_TEST_ALL ? 150 : 100 },
  );
  assert.deepEqual([...seen].sort(), [
    'above-memory',
    'answered',
    'idempotency-key-reused',
    'not-deployed',
    'quota-exceeded',
  ]);
});

test('ends of one turn have the same outcomes and effects as ends one after another', async () => {
  const end = fc.record({
    // The end is for invocation `which % 3`. If `which` is above 2, the result is large.
    which: fc.nat(5),
    kind: fc.constantFrom('result', 'result', 'failed', 'cancelled'),
    // The argument that the caller gets wrong.
    wrong: fc.constantFrom('nothing', 'nothing', 'nothing', 'epoch', 'gap'),
    tokens: fc.nat(9),
    pages: fc.nat(9),
  });
  const seen = new Set<unknown>();
  await fc.assert(
    fc.asyncProperty(fc.array(end, { minLength: 2, maxLength: 12 }), async (ends) => {
      const prepare = async (scheduler: Scheduler) => {
        await scheduler.quotas.setDefaults({ 'redis-bytes': 10_000 });
        const epochs: number[] = [];
        for (let i = 0; i < 3; i += 1) {
          await scheduler.invocations.create(
            submission({ id: `i${i}`, tenant: TENANTS[i % 2] ?? 'a', submittedAt: NOW }),
          );
          const begun = await beginAttempt(scheduler, `i${i}`, 'r1', `token ${i}`);
          epochs.push('epoch' in begun ? begun.epoch : 0);
        }
        await scheduler.invocations.create(submission({ id: 'waits', tenant: 'a', submittedAt: NOW }));
        return ({ which, kind, wrong, tokens, pages }: (typeof ends)[number]) => {
          const id = which % 3;
          const epoch = (epochs[id] ?? 0) + (wrong === 'epoch' ? 1 : 0);
          const terminal: TerminalEvent =
            kind === 'result'
              ? { event: 'result', data: JSON.stringify('x'.repeat(which > 2 ? 5000 : 5)) }
              : { event: 'error', data: '{}', code: kind === 'failed' ? 'trap' : 'cancelled', message: kind };
          const usage = { outputTokens: tokens };
          const peak = { pages: { m: pages }, memoryMb: tokens };
          return scheduler.invocations.finish(`i${id}`, epoch, 1, terminal, usage, wrong === 'gap' ? 3 : 0, peak);
        };
      };
      const answers = await bothWays(prepare, ends);
      for (const answer of answers) seen.add(typeof answer === 'string' ? answer.split(' ')[0] : answer);
    }),
    { seed: 20261122, numRuns: process.env.PIE_TEST_ALL ? 60 : 20 },
  );
  assert.deepEqual([...seen].sort(), ['ended', 'ok', 'quota-exceeded', 'sequence-gap', 'stale']);
});

test('an end that writes the last events leaves the same data as an append and then an end, or changes nothing', async () => {
  const event: fc.Arbitrary<NewEvent> = fc.record({
    event: fc.constantFrom('start' as const, 'message', 'log', 'metric'),
    data: fc.nat(1500).map((length) => JSON.stringify('x'.repeat(length))),
  });
  const seen = new Set<unknown>();
  await fc.assert(
    fc.asyncProperty(
      fc.array(event, { minLength: 1, maxLength: 6 }),
      fc.array(event, { maxLength: 2 }),
      fc.boolean(),
      async (lastEvents, earlierEvents, isError) => {
        const terminal: TerminalEvent = isError
          ? { event: 'error', data: '{}', code: 'trap', message: 'm' }
          : { event: 'result', data: JSON.stringify('x'.repeat(500)) };
        const usage = { outputTokens: 3 };
        const ways = [false, true].map(async (isTogether) => {
          const scheduler = openTestScheduler(redis, { clock: () => NOW, retention: { maxBytes: 5000 } });
          const { invocations } = scheduler;
          const lease = await offer(scheduler, { slots: 3 });
          try {
            // A function's log copies each `log` event. An end does not count the copies when it checks the quota.
            const hasLogs = lastEvents.some((one) => one.event === 'log');
            if (!hasLogs) await scheduler.quotas.setDefaults({ 'redis-bytes': 9000 });
            await invocations.create(submission({ id: 'i', tenant: 'a', submittedAt: NOW }));
            const begun = await beginAttempt(scheduler, 'i', 'r1', 'token');
            const epoch = 'epoch' in begun ? begun.epoch : 0;
            if (earlierEvents.length > 0) await invocations.append('i', epoch, 1, earlierEvents);
            const unchanged = await dump(scheduler);
            const lastLoggedSeq = earlierEvents.length;
            const seq = lastLoggedSeq + lastEvents.length + 1;
            if (isTogether) {
              const answer = await invocations.finish(
                'i',
                epoch,
                seq,
                terminal,
                usage,
                lastLoggedSeq,
                null,
                lastEvents,
              );
              return { answer, unchanged, stored: await dump(scheduler) };
            }
            const write = { id: 'i', epoch, firstSeq: lastLoggedSeq + 1, events: lastEvents };
            const written = await invocations
              .write({ ...write, usage: undefined, showsOwnEvents: true })
              .then(({ outcome }) => outcome, failure);
            const finish = () => invocations.finish('i', epoch, seq, terminal, usage, seq - 1);
            const answer = written === 'ok' ? await finish().catch(failure) : 'unwritten';
            return { answer: answer === 'ok' ? 'ok' : 'unwritten', unchanged, stored: await dump(scheduler) };
          } finally {
            await lease.release();
            await scheduler.close();
          }
        });
        const [apart, together] = await Promise.all(ways);
        assert.equal(together?.answer, apart?.answer);
        assert.deepEqual(together?.stored, apart?.answer === 'ok' ? apart.stored : together?.unchanged);
        seen.add(together?.answer);
      },
    ),
    { seed: 20261122, numRuns: process.env.PIE_TEST_ALL ? 60 : 20 },
  );
  assert.deepEqual([...seen].sort(), ['ok', 'unwritten']);
});

test('a full Redis stores no submission, even in a script call in which a quota refuses another', async () => {
  const scheduler = openTestScheduler(redis, { clock: () => NOW });
  const { invocations, quotas, store } = scheduler;
  try {
    await quotas.setDefaults({ 'requests-per-minute': 1 });
    await invocations.create(submission({ id: 'first', tenant: 'a', submittedAt: NOW }));
    await store.redis.config('SET', 'maxmemory', '1');
    const made = ['a', 'b'].map((tenant) =>
      invocations.create(submission({ id: `second of ${tenant}`, tenant, submittedAt: NOW })),
    );
    assert.deepEqual(await Promise.all(made.map((one) => one.catch((error) => error.code))), [
      'quota-exceeded',
      'store-unavailable',
    ]);
  } finally {
    await store.redis.config('SET', 'maxmemory', '0');
    await scheduler.close();
  }
});

test('a damaged counter of one tenant does not affect the end of another tenant', async () => {
  const scheduler = openTestScheduler(redis);
  const { invocations, store, admission } = scheduler;
  const { keys } = store;
  const lease = await offer(scheduler, { slots: 2 });
  try {
    const epochs = new Map<string, number>();
    for (const tenant of TENANTS) {
      await invocations.create(submission({ id: tenant, tenant }));
      const begun = await beginAttempt(scheduler, tenant, 'r1', tenant);
      epochs.set(tenant, 'epoch' in begun ? begun.epoch : 0);
    }
    await store.redis.set(`${keys.account('a')}:open`, 'damaged');
    const terminal: TerminalEvent = { event: 'result', data: '{}' };
    const ends = TENANTS.map((tenant) => invocations.finish(tenant, epochs.get(tenant) ?? 0, 1, terminal, null));
    assert.deepEqual(await Promise.all(ends), ['ok', 'ok']);
    assert.deepEqual(await store.redis.hgetall(`${keys.account('b')}:open`), { '*': '0' });
    assert.equal(await store.redis.zcard(keys.deadlines), 0);
    assert.equal(await store.redis.exists(`${keys.account('b')}:redis`), 1);
    assert.equal(await store.redis.hget(`${keys.account('b')}:redis`, 'i:b'), null);
    assert.deepEqual(await admission.repair(0), { dropped: 0, returned: 0, sums: 0, lost: [] });
    await store.redis.del(`${keys.account('a')}:open`);
  } finally {
    await lease.release();
    await scheduler.close();
  }
});
