import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { Usage } from '../invocations/types.ts';
import { SPANS, type Span, spanNumber } from '../quotas/names.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { METERED_FIELDS, type UsageCounts } from './metered.ts';
import type { SpanCounts } from './usage.ts';

/** Two minutes before the end of a day and of a month, so that the steps of a test cross both. */
const START = Date.UTC(2027, 1, 28, 23, 58);
const NAMES = METERED_FIELDS.map(({ name }) => name);
const TENANTS = { story: 'acme', poem: 'acme', other: 'beta' } as const;
type Name = keyof typeof TENANTS;

/** One step of an invocation; `resend` repeats its last calls in reverse order. */
const step = fc.record({
  which: fc.nat({ max: 4 }),
  kind: fc.constantFrom('append', 'append', 'append', 'report', 'resend', 'lose', 'finish', 'settle', 'fail', 'child'),
  spent: fc.array(fc.integer({ min: 0, max: 2000 }), { minLength: NAMES.length, maxLength: NAMES.length }),
  waitMs: fc.constantFrom(0, 0, 1, 1000, 30_000, 3_600_000),
});
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;
const schedule = fc.array(step, { minLength: 1, maxLength: 40, size: 'max' });

interface Run {
  readonly id: string;
  readonly name: Name;
  epoch: number;
  seq: number;
  usage: Record<string, number>;
  /** The usage of the present attempt that reached Redis. */
  reported: Usage;
  /** The usage of each earlier attempt. */
  readonly earlier: Usage[];
  calls: (() => Promise<unknown>)[];
  isOver: boolean;
}

describe('metering', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now = START;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Adds whole tokens, and eighths of the other units, whose sums are exact. */
  const spend = (run: Run, spent: readonly number[]) => {
    for (const [i, { name, units }] of METERED_FIELDS.entries()) {
      run.usage[name] = (run.usage[name] ?? 0) + (spent[i] ?? 0) / (units === 1 ? 1 : 8);
    }
  };

  async function begin(name: Name): Promise<Run> {
    const record = submission({ tenant: TENANTS[name], function: name, submittedAt: now, restartable: true });
    await scheduler.invocations.create(record);
    return { ...(await attempt(record.id)), id: record.id, name, reported: {}, earlier: [], calls: [], isOver: false };
  }

  async function attempt(id: string): Promise<Pick<Run, 'epoch' | 'seq' | 'usage'>> {
    const begun = await beginAttempt(scheduler, id, 'r1');
    assert.ok('epoch' in begun);
    return { epoch: begun.epoch, seq: begun.nextSeq, usage: {} };
  }

  async function launch(run: Run): Promise<Run> {
    const child = submission({ tenant: TENANTS[run.name], function: run.name, submittedAt: now });
    const family = { parent: run.id, parentEpoch: run.epoch, root: run.id, arrival: 1, runtimeId: 'r1' };
    const begun = await scheduler.invocations.beginChild({ ...child, ...family }, child.id);
    assert.ok('epoch' in begun);
    return {
      ...run,
      id: child.id,
      epoch: begun.epoch,
      seq: begun.nextSeq,
      usage: {},
      reported: {},
      earlier: [],
      calls: [],
      isOver: false,
    };
  }

  async function act(runs: Run[], { which, kind, spent }: Step): Promise<void> {
    const run = runs[which % runs.length];
    if (run === undefined || (run.isOver && kind !== 'resend' && kind !== 'settle')) return;
    const { invocations } = scheduler;
    const { id, epoch, seq } = run;
    const call = async (work: () => Promise<unknown>) => {
      run.calls.push(work);
      await work();
    };
    switch (kind) {
      case 'append':
      case 'report': {
        spend(run, spent);
        const usage: Usage = { ...run.usage };
        run.reported = usage;
        if (kind === 'report') return call(() => invocations.report(id, epoch, usage));
        run.seq += 2;
        const events = [1, 2].map((i) => ({ event: 'message' as const, data: `"${seq} ${i}"` }));
        return call(() => invocations.append(id, epoch, seq, events, usage));
      }
      case 'resend':
        for (const again of run.calls.slice(-3).reverse()) await again().catch(() => undefined);
        return;
      case 'lose': {
        // The runtime reports the last usage of the lost attempt, or dies before it can do so.
        const isReported = which % 2 === 0;
        if (isReported) spend(run, spent);
        const usage: Usage | null = isReported ? { ...run.usage } : null;
        run.calls.push(() => invocations.requeue(id, epoch, seq, 'lost', usage));
        const outcome = await invocations.requeue(id, epoch, seq, 'lost', usage);
        if (outcome === 'requeued') {
          run.earlier.push(usage ?? run.reported);
          Object.assign(run, await attempt(id), { reported: {} });
        } else assert.ok(outcome === 'not-restartable' || outcome === 'no-attempts-left', outcome);
        return;
      }
      case 'finish': {
        spend(run, spent);
        const usage: Usage = { ...run.usage };
        run.isOver = true;
        run.reported = usage;
        return call(() => invocations.finish(id, epoch, seq, { event: 'result', data: '{}' }, usage));
      }
      case 'settle': {
        if (!run.isOver) return;
        spend(run, spent);
        const usage: Usage = { ...run.usage };
        const settle = () => invocations.settle({ id, tenant: TENANTS[run.name] }, epoch, usage);
        run.calls.push(settle);
        // Redis takes the usage only if this attempt ended the invocation (`finish`), and not another process (`fail`).
        if ((await settle()) === 'ok') run.reported = usage;
        return;
      }
      case 'fail':
        run.isOver = true;
        await call(() => invocations.fail(id, 'runtime-lost', 'lost'));
        return assertLastEventHasUsage(id);
      case 'child':
        runs.push(await launch(run));
    }
  }

  /** The sum over the spans, added up in thousandths, which are whole numbers. */
  const sum = (rows: readonly SpanCounts[], name: keyof UsageCounts, fn: string | null): number =>
    rows.filter((row) => row.function === fn).reduce((total, row) => total + row.counts[name] * 1000, 0) / 1000;

  test('usage counters equal the sums of the records in every span, under lost and repeated calls', async () => {
    await fc.assert(
      fc.asyncProperty(schedule, async (steps) => {
        now = START;
        scheduler = openTestScheduler(redis, { clock: () => now });
        try {
          const runs = await Promise.all((['story', 'poem', 'other', 'story'] as const).map(begin));
          for (const one of steps) {
            now += one.waitMs;
            await act(runs, one);
          }
          await check(runs);
          await scheduler.store.call(async (redis) => {
            for (const key of await redis.keys(`${scheduler.store.keys.account('acme')}:usage:*:*`))
              assert.ok((await redis.pttl(key)) > 0, `${key} never expires`);
          });
        } finally {
          await scheduler.close();
        }
      }),
      { numRuns: process.env.PIE_TEST_ALL ? 60 : 20, seed: 20_270_228 },
    );
  });

  test('the latest counters of idle functions are removed, and their usage is kept', async () => {
    now = START;
    scheduler = openTestScheduler(redis, { clock: () => now });
    const { store, usage } = scheduler;
    const account = store.keys.account('acme');
    try {
      const minutes = 12;
      const functionsPerMinute = 40;
      for (let minute = 0; minute < minutes; minute++) {
        for (let i = 0; i < functionsPerMinute; i++) await runOnce(`f${minute}-${i}`);
        now += 60_000;
      }
      for (let i = 0; i < minutes; i++) {
        await runOnce('last');
        now += 60_000;
      }
      const latestFields = await store.redis.hkeys(`${account}:usage:latest`);
      assert.deepEqual(latestFields.sort(), ['*', 'last']);
      assert.deepEqual(await store.redis.hkeys(`${account}:open`), ['*']);
      const rows = await usage.spans('acme', 'month', START, now, 'functions');
      assert.equal(new Set(rows.map((row) => row.function)).size, minutes * functionsPerMinute + 1);
      for (const row of rows) assert.equal(row.counts.failed, row.function === 'last' ? minutes : 1, `${row.function}`);
    } finally {
      await scheduler.close();
    }
  });

  test('usage of many functions is read in several calls, so that no call blocks Redis for long', async (t) => {
    now = START;
    scheduler = openTestScheduler(redis, { clock: () => now });
    const { store, usage } = scheduler;
    try {
      await countMany('hour', 5, 600);
      const sent = t.mock.method(store, 'script');
      const rows = await usage.spans('acme', 'hour', START - 4 * 3_600_000, now, 'functions');
      // The others have counts in each span, `first` only in the last one.
      assert.equal(rows.length, 5 * 600 + 1);
      assert.equal(new Set(rows.map((row) => `${row.at} ${row.function}`)).size, rows.length);
      const replies = (await Promise.all(sent.mock.calls.map((call) => call.result))) as unknown[][][];
      const fields = replies.map((reply) => reply.reduce((sum, window) => sum + window.length / 2, 0));
      // A call ends after the window with its 1,000th field (MOST_FIELDS of the script).
      assert.ok(Math.max(...fields) < 2000, `fields of each call: ${fields}`);
    } finally {
      await scheduler.close();
    }
  });

  test('a span counts a bounded number of functions one by one, and the others together', async () => {
    now = START;
    scheduler = openTestScheduler(redis, { clock: () => now });
    const { store, usage } = scheduler;
    try {
      // With `*` and `first`, the day has its 2,048 fields, so `late` and `later` are counted as `-`.
      await countMany('day', 1, 2046);
      for (const name of ['late', 'later', 'late', 'first']) await runOnce(name);
      // `countMany` runs `first` twice, so the day has six runs. The counts of a minute join those of the day once a later minute counts.
      now += 60_000;
      await runOnce('tomorrow');
      const day = `${store.keys.account('acme')}:usage:day:${spanNumber('day', START)}`;
      assert.equal(await store.redis.hlen(day), 2049);
      const [tenantDay] = await usage.spans('acme', 'day', START, START, 'tenant');
      assert.equal(tenantDay?.counts.failed, 6);
      const rows = await usage.spans('acme', 'day', START, START, 'functions');
      const failed = (name: string) => rows.find((row) => row.function === name)?.counts.failed;
      assert.deepEqual([failed('first'), failed('-'), failed('late')], [3, 3, undefined]);
      const hour = await usage.spans('acme', 'hour', START, START, 'functions');
      assert.deepEqual(hour.map((row) => [row.function, row.counts.failed]).sort(), [
        ['first', 3],
        ['late', 2],
        ['later', 1],
      ]);
    } finally {
      await scheduler.close();
    }
  });

  /** Runs one invocation that fails. */
  async function runOnce(name: string): Promise<void> {
    const record = submission({ tenant: 'acme', function: name, submittedAt: now });
    await scheduler.invocations.create(record);
    await scheduler.invocations.fail(record.id, 'internal', 'over');
  }

  /** Runs the function `first`, and copies its counts to `functions` others in each of the last `spans` spans. */
  async function countMany(span: Span, spans: number, functions: number): Promise<void> {
    const { redis: client, keys } = scheduler.store;
    const keyOf = (number: number) => `${keys.account('acme')}:usage:${span}:${number}`;
    await runOnce('first');
    now += 60_000;
    // The counts of a minute join those of longer spans once a later minute counts.
    await runOnce('first');
    const last = spanNumber(span, START);
    const counts = await client.hgetBuffer(keyOf(last), 'first');
    assert.ok(counts);
    const fields = Array.from({ length: functions }, (_, i) => [`f${i}`, counts]).flat();
    for (let i = 0; i < spans; i++) {
      await client.hset(keyOf(last - i), ...fields);
      await client.pexpire(keyOf(last - i), 24 * 3_600_000);
    }
  }

  /** Asserts that the last event of an invocation that the platform ended has the record's usage. */
  async function assertLastEventHasUsage(id: string): Promise<void> {
    const event = (await scheduler.events.read(id, 0)).at(-1);
    const eventUsage = JSON.parse(event?.data ?? '{}').usage ?? {};
    const { usage } = (await scheduler.invocations.get(id)) ?? {};
    for (const name of NAMES) assert.equal(eventUsage[name] ?? 0, usage?.[name] ?? 0, `${name} in the last event`);
  }

  async function check(runs: readonly Run[]): Promise<void> {
    const records = await Promise.all(runs.map(({ id }) => scheduler.invocations.get(id)));
    for (const [i, { reported, earlier }] of runs.entries()) {
      for (const name of NAMES) {
        const attemptsTotal = [...earlier, reported].reduce((sum, one) => sum + (one[name] ?? 0), 0);
        assert.equal(records[i]?.usage?.[name] ?? 0, attemptsTotal, `${name} of run ${i} over its attempts`);
      }
    }
    for (const tenant of ['acme', 'beta']) {
      const ofTenant = records.filter((record) => record?.tenant === tenant);
      for (const span of SPANS satisfies readonly Span[]) {
        const { usage } = scheduler;
        const rows = [
          ...(await usage.spans(tenant, span, START, now, 'tenant')),
          ...(await usage.spans(tenant, span, START, now, 'functions')),
        ];
        // Minutes are kept for three hours, of which the check leaves one hour as a margin.
        if (span === 'minute' && now - START > 2 * 3_600_000) continue;
        for (const fn of [null, 'story', 'poem', 'other']) {
          const ofFunction = ofTenant.filter((record) => fn === null || record?.function === fn);
          for (const name of NAMES) {
            const total =
              ofFunction.reduce((all, record) => all + Math.round((record?.usage?.[name] ?? 0) * 1000), 0) / 1000;
            assert.equal(Math.round(sum(rows, name, fn) * 1000) / 1000, total, `${tenant} ${span} ${fn} ${name}`);
          }
          const counted = {
            invocations: ofFunction.length,
            requests: ofFunction.filter((record) => record?.parent === null).length,
            succeeded: ofFunction.filter((record) => record?.status === 'succeeded').length,
            failed: ofFunction.filter((record) => record?.status === 'failed').length,
          } as const;
          for (const [name, count] of Object.entries(counted)) {
            assert.equal(sum(rows, name as keyof UsageCounts, fn), count, `${tenant} ${span} ${fn} ${name}`);
          }
        }
      }
    }
  }
});
