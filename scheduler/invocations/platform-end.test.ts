import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { openTestScheduler, submission } from '../testing/fixture.ts';
import { CollectedLog } from '../testing/log.ts';
import { TestRedis } from '../testing/redis.ts';
import {
  END_RECORDS,
  EndLog,
  type EndOutcome,
  endMessage,
  MAX_RECORDS,
  MORE_OF_ALL,
  MORE_OF_TENANT,
  PLATFORM_CODES,
  PLATFORM_ENDS,
  type RefusalCode,
} from './endings.ts';
import { FAILURE_CODES } from './types.ts';

const OF = { invocation: 'i1', tenant: 'acme', function: 'story' };
const OUTCOMES = ['ended', 'starts-again'] as const satisfies readonly EndOutcome[];

describe('the record of an end that the platform causes', () => {
  test('exists for every failure except those of the inferlet and its client', () => {
    const others = FAILURE_CODES.filter((code) => !PLATFORM_CODES.some((one) => one === code));
    assert.deepEqual(others, ['inferlet-error', 'trap', 'invalid-result', 'cancelled']);
    assert.equal(Object.keys(PLATFORM_ENDS).length, PLATFORM_CODES.length);
  });

  for (const code of PLATFORM_CODES) {
    test(`${code}: one record, with the cause that the client reads and the figures that decided`, () => {
      for (const outcome of OUTCOMES) {
        const log = new CollectedLog();
        const end = { code, cause: 'A limit of 5 was reached.', figures: { used: 6, limit: 5 } };
        new EndLog(log).note(OF, end, outcome);
        const { cause, figures } = end;
        assert.deepEqual(log.records, [
          { level: PLATFORM_ENDS[code].level, message: END_RECORDS[outcome], fields: { ...OF, code, cause, figures } },
        ]);
        assert.ok(endMessage(end).startsWith(cause));
      }
    });
  }

  test('names a refusal, which has no invocation', () => {
    const log = new CollectedLog();
    const code: RefusalCode = 'quota-requests';
    const figures = { quota: 'requests-per-minute', used: 10, limit: 10 };
    new EndLog(log).refused({ tenant: 'acme', function: 'story' }, { code, cause: 'Used up.', figures });
    assert.deepEqual(log.records[0]?.fields, { tenant: 'acme', function: 'story', code, cause: 'Used up.', figures });
    assert.equal(log.records[0]?.message, END_RECORDS.refused);
  });

  test('bounds the length of a cause', () => {
    const log = new CollectedLog();
    new EndLog(log).note(OF, { code: 'output-limit', cause: 'x'.repeat(100_000), figures: {} }, 'ended');
    assert.equal(String(log.records[0]?.fields.cause).length, 1000);
  });

  test('a tenant with many ends gets counts, and another tenant still gets its records', () => {
    const log = new CollectedLog();
    const ends = new EndLog(log);
    const note = (tenant: string, code: 'cpu-limit' | 'terminated') =>
      ends.note({ ...OF, tenant }, { code, cause: 'Why.', figures: {} }, 'ended');
    for (let i = 0; i < MAX_RECORDS.ends.tenant + 5; i++) note('flood', 'cpu-limit');
    for (let i = 0; i < 3; i++) note('flood', 'terminated');
    note('small', 'terminated');
    assert.equal(log.records.length, MAX_RECORDS.ends.tenant + 1);
    ends.flush();
    assert.deepEqual(log.records.at(-1), {
      level: 'warn',
      message: MORE_OF_TENANT,
      fields: { tenant: 'flood', ends: { 'cpu-limit': 5, terminated: 3 } },
    });
    note('flood', 'cpu-limit');
    assert.equal(log.records.at(-1)?.message, END_RECORDS.ended, 'the next window has records again');
    ends.flush();
    assert.equal(log.records.length, MAX_RECORDS.ends.tenant + 3, 'a window without a surplus ends silently');
  });

  test('refusals of one tenant, and those of all, have bounds of their own; what they leave out is counted', () => {
    const log = new CollectedLog();
    const ends = new EndLog(log);
    const refuse = (tenant: string, count: number, code: RefusalCode = 'quota-requests') => {
      for (let i = 0; i < count; i++) ends.refused({ tenant, function: 'story' }, { code, cause: 'Why.', figures: {} });
    };
    const { tenant: most, all } = MAX_RECORDS.refusals;
    const floods = Array.from({ length: all / most }, (_, i) => `flood-${i}`);
    for (const tenant of floods) refuse(tenant, most + 3);
    refuse('flood-0', 1, 'quarantined');
    assert.equal(log.records.length, all);
    // The log has no room for refusals of other tenants, and still has room for ends.
    for (let i = 0; i < 10_000; i++) refuse(`small-${i}`, 1);
    refuse('small-0', 1, 'quarantined');
    assert.equal(log.records.length, all);
    ends.note({ ...OF, tenant: 'flood-0' }, { code: 'terminated', cause: 'Why.', figures: {} }, 'ended');
    assert.equal(log.records.length, all + 1);
    ends.flush();
    assert.deepEqual(log.records.slice(all + 1), [
      ...floods.map((tenant, i) => ({
        level: 'warn',
        message: MORE_OF_TENANT,
        fields: { tenant, refusals: { 'quota-requests': 3, ...(i === 0 && { quarantined: 1 }) } },
      })),
      { level: 'warn', message: MORE_OF_ALL, fields: { refusals: { 'quota-requests': 10_000, quarantined: 1 } } },
    ]);
    refuse('small-0', 1);
    assert.equal(log.records.at(-1)?.message, END_RECORDS.refused, 'the next window has records again');
    ends.flush();
  });
});

test('the process that ends or refuses an invocation logs it once, in the words that the client reads', async (t) => {
  const redis = await TestRedis.start();
  t.after(() => redis.stop());
  const log = new CollectedLog();
  const scheduler = openTestScheduler(redis, { log });
  t.after(() => scheduler.close());
  const { invocations, events, quotas } = scheduler;
  const taken = (): Record<string, unknown>[] =>
    log.records.splice(0).map(({ level, message, fields }) => ({ level, message, ...fields }));
  const of = { tenant: 'acme', function: 'story' };

  const lost = submission(of);
  await invocations.create(lost);
  const figures = { silentMs: 3100, limitMs: 3000 };
  for (let i = 0; i < 2; i++) await invocations.fail(lost.id, 'runtime-lost', 'r1 was silent.', '', figures);
  const [{ cause, ...record } = { cause: null }, ...more] = taken();
  assert.deepEqual(more, [], 'the second call ended nothing');
  const expected = { level: 'warn', message: END_RECORDS.ended, ...of, invocation: lost.id, code: 'runtime-lost' };
  assert.deepEqual(record, { ...expected, figures });
  const [end] = await events.read(lost.id, 0);
  const code = 'runtime-lost';
  assert.equal(JSON.parse(end?.data ?? '').message, endMessage({ code, cause: String(cause), figures }));

  const debounce = { key: 'k', delayMs: 60_000, maxMs: 60_000 };
  const [first, second] = [submission({ ...of, debounce }), submission({ ...of, debounce })];
  await invocations.create(first);
  await invocations.create(second);
  const [superseded, ...others] = taken();
  assert.deepEqual(others, []);
  const [event] = await events.read(first.id, 0);
  assert.deepEqual(
    [superseded?.invocation, superseded?.code, superseded?.cause],
    [first.id, 'superseded', JSON.parse(event?.data ?? '').message],
  );

  const limit = { quota: 'requests-per-day', limit: 0, function: null, until: null } as const;
  await quotas.set('acme', limit, { author: 'key_1', reason: 'for the test' });
  const refusal = await invocations.create(submission(of)).catch((error: Error) => error.message);
  const { resetsAt, ...counts } = (log.records[0]?.fields.figures ?? {}) as Record<string, unknown>;
  assert.equal(typeof resetsAt, 'number');
  assert.deepEqual(counts, { quota: 'requests-per-day', limit: 0, used: 3 });
  assert.deepEqual(
    taken().map(({ figures: _, ...rest }) => rest),
    [{ level: 'info', message: END_RECORDS.refused, ...of, code: 'quota-requests', cause: refusal }],
  );
});
