import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { toCounts } from '../usage/metered.ts';
import { QuotaExceeded } from './exceeded.ts';
import { changeFault, type DefaultLimits, MAX_LIMIT, resolveAll } from './limits.ts';
import {
  countedPart,
  countedUse,
  HELD_QUOTAS,
  mayBeSetForFunction,
  QUOTA_NAMES,
  quotaErrorCode,
  SPANS,
  spanNumber,
  spanStart,
  windowEnd,
  windowLength,
} from './names.ts';

const SEED = 20_261_120;
/** The part of a file that its scripts share. */
const sharedLua = (path: string) => readFileSync(new URL(path, import.meta.url), 'utf8').split('--- @script')[0];
const LIMITS = sharedLua('./limits.lua');
const COUNTERS = sharedLua('../usage/usage.lua');
const DAY_MS = 86_400_000;

describe('limits', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let now = 0;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  test('UTC windows have the same numbers in Lua and TypeScript, contain their time, and follow each other', async () => {
    const script = `${COUNTERS}\nlocal n = {}\nfor i, at in ipairs(ARGV) do for w, window in ipairs({'minute', 'hour', 'day', 'month'}) do
      n[#n + 1] = windowNumber(window, tonumber(at)) end end\nreturn n`;
    // The beginning and the end of a leap day, the end of February 2100 (no leap year), and the end of 2000 (a leap year).
    const leap = [Date.UTC(2028, 1, 29), Date.UTC(2028, 2, 1) - 1, Date.UTC(2100, 1, 28), Date.UTC(2000, 11, 31)];
    const time = fc.integer({ min: Date.UTC(1999, 0), max: Date.UTC(2200, 0) });
    const times = [...leap, ...fc.sample(time, { numRuns: 500, seed: SEED })];
    const expected = times.flatMap((at) => SPANS.map((span) => spanNumber(span, at)));
    assert.deepEqual(await redis.connect().eval(script, 0, ...times), expected);
    for (const at of times) {
      for (const window of ['minute', 'day', 'month'] as const) {
        const start = spanStart(window, spanNumber(window, at));
        assert.ok(start <= at && at < windowEnd(window, at));
        assert.equal(spanNumber(window, windowEnd(window, at)), spanNumber(window, at) + 1);
        assert.equal(windowEnd(window, at) - start, windowLength(window, at));
      }
    }
    assert.equal(windowEnd('month', Date.UTC(2028, 1, 3)), Date.UTC(2028, 2, 1));
  });

  const setting = fc.record({
    quota: fc.constantFrom(...QUOTA_NAMES),
    function: fc.constantFrom(null, 'story'),
    limit: fc.oneof(fc.nat({ max: 20 }), fc.constantFrom(null, MAX_LIMIT)),
    until: fc.constantFrom(null, null, 1500, 3000),
  });
  const defaults = fc.dictionary(fc.constantFrom(...QUOTA_NAMES), fc.nat({ max: 9 }));

  test('Lua and TypeScript resolve the same limits for any settings, defaults and times', async () => {
    // ARGV: account, function, time, names of the held quotas.
    const script = `${LIMITS}\nlocal found = {}
      for _, limit in ipairs(countedLimits(ARGV[1], ARGV[2], tonumber(ARGV[3]))) do
        found[#found + 1] = limit.kind .. '-per-' .. limit.window .. ' ' .. limit.fn .. ' ' .. string.format('%.0f', limit.limit) end
      for i = 4, #ARGV do for _, fn in ipairs({'', ARGV[2]}) do
        local limit = quotaLimit(ARGV[1], ARGV[i], fn, tonumber(ARGV[3]))
        if limit then found[#found + 1] = ARGV[i] .. ' ' .. fn .. ' ' .. string.format('%.0f', limit) end end end
      return found`;
    const connection = redis.connect();
    await fc.assert(
      fc.asyncProperty(
        fc.array(setting, { maxLength: 12 }),
        defaults,
        fc.constantFrom(1000, 1500, 2999),
        async (changes, defaultLimits, at) => {
          now = 0;
          scheduler = openTestScheduler(redis, { clock: () => now });
          try {
            await scheduler.quotas.setDefaults(defaultLimits as DefaultLimits);
            for (const change of changes) {
              if (changeFault(change, now) === null) {
                await scheduler.quotas.set('acme', change, { author: 'a', reason: '' });
              }
            }
            now = at;
            const account = scheduler.store.keys.account('acme');
            const settings = await connection.hgetall(`${account}:quotas`);
            const expected = resolveAll(settings, defaultLimits as DefaultLimits, ['story'], at).map(
              ({ quota, function: fn, limit }) => `${quota} ${fn ?? ''} ${limit}`,
            );
            const found = (await connection.eval(script, 0, account, 'story', at, ...HELD_QUOTAS)) as string[];
            assert.deepEqual(found.sort(), expected.sort());
          } finally {
            await scheduler.close();
          }
        },
      ),
      { numRuns: process.env.PIE_TEST_ALL ? 60 : 20, seed: SEED },
    );
  });

  test('Lua and TypeScript compute the same use of every counted quota from the counts', async () => {
    const kinds = [...new Set(QUOTA_NAMES.flatMap((quota) => countedPart(quota)?.counted ?? []))];
    // ARGV has 13 counts, which `usedOf` reads by their positions, and then the kinds.
    const script = `${COUNTERS}\nlocal used = {}
      for i = 14, #ARGV do used[#used + 1] = string.format('%.17g', usedOf(ARGV[i], ARGV)) end
      return used`;
    const counts = fc.array(fc.nat(), { minLength: 13, maxLength: 13 });
    const connection = redis.connect();
    for (const values of fc.sample(counts, { numRuns: 50, seed: SEED })) {
      const used = (await connection.eval(script, 0, ...values, ...kinds)) as string[];
      const expected = kinds.map((kind) => countedUse(kind, toCounts(values)));
      assert.deepEqual(used.map(Number), expected);
    }
  });

  const step = fc.record({
    fn: fc.constantFrom('story', 'poem'),
    tokens: fc.nat({ max: 12 }),
    waitMs: fc.constantFrom(0, 0, 500, 20_000, 5 * 3_600_000),
  });

  test('a refused request is refused again one millisecond before its `retryAfterMs` ends, and accepted at its end', async () => {
    const counted = QUOTA_NAMES.filter((quota) => /^(requests|tokens)-/.test(quota));
    const limits = fc.array(
      fc.record({
        quota: fc.constantFrom(...counted),
        function: fc.constantFrom(null, 'story'),
        limit: fc.integer({ min: 1, max: 15 }),
        until: fc.constant(null),
      }),
      { minLength: 1, maxLength: 6 },
    );
    await fc.assert(
      fc.asyncProperty(
        limits,
        fc.array(step, { minLength: 10, maxLength: 25, size: 'max' }),
        async (changes, steps) => {
          // A minute before the end of a day, and about a day before the end of the month.
          now = Date.UTC(2026, 9, 30, 23, 59, 0);
          scheduler = openTestScheduler(redis, { clock: () => now });
          const { invocations } = scheduler;
          const create = (fn: string) => {
            const record = submission({ tenant: 'acme', function: fn, submittedAt: now });
            return invocations.create(record).then(() => record.id, onlyQuotaExceeded);
          };
          try {
            for (const change of changes) await scheduler.quotas.set('acme', change, { author: 'a', reason: '' });
            for (const { fn, tokens, waitMs } of steps) {
              now += waitMs;
              let created = await create(fn);
              if (created instanceof QuotaExceeded) {
                const { retryAfterMs, use } = created;
                assert.ok(retryAfterMs !== null && retryAfterMs <= 31 * DAY_MS && use.used >= use.limit);
                now += retryAfterMs - 1;
                assert.ok((await create(fn)) instanceof QuotaExceeded, 'one millisecond before');
                now += 1;
                created = await create(fn);
              }
              assert.ok(typeof created === 'string', String(created));
              const attempt = await beginAttempt(scheduler, created, 'r1');
              assert.ok('epoch' in attempt);
              // A report states the total of the attempt, so the second report adds nothing.
              await invocations.report(created, attempt.epoch, { outputTokens: tokens });
              const { exceeded } = await invocations.report(created, attempt.epoch, { outputTokens: tokens });
              assert.ok(exceeded === null || exceeded.quota.startsWith('tokens'));
            }
          } finally {
            await scheduler.close();
          }
        },
      ),
      { numRuns: process.env.PIE_TEST_ALL ? 40 : 15, seed: SEED },
    );
  });

  test('every quota has an error code and is either counted per window or held', () => {
    for (const quota of QUOTA_NAMES) {
      assert.match(quotaErrorCode(quota), /^quota-/);
      const isHeld = (HELD_QUOTAS as readonly string[]).includes(quota);
      assert.equal(countedPart(quota) === null, isHeld);
      assert.equal(mayBeSetForFunction(quota), !isHeld || quota === 'concurrent-invocations');
    }
  });
});

function onlyQuotaExceeded(error: unknown): QuotaExceeded {
  if (error instanceof QuotaExceeded) return error;
  throw error;
}
