import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CollectedLog } from '../testing/log.ts';
import {
  END_RECORDS,
  EndLog,
  type EndOutcome,
  endMessage,
  MAX_RECORDS,
  MORE_ENDS,
  PLATFORM_CODES,
  PLATFORM_ENDS,
  type RefusalCode,
} from './platform-end.ts';
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

  test('a tenant with many ends gets counts, and another tenant still gets its records', () => {
    const log = new CollectedLog();
    const ends = new EndLog(log);
    const note = (tenant: string, code: 'cpu-limit' | 'terminated') =>
      ends.note({ ...OF, tenant }, { code, cause: 'Why.', figures: {} }, 'ended');
    for (let i = 0; i < MAX_RECORDS + 5; i++) note('flood', 'cpu-limit');
    for (let i = 0; i < 3; i++) note('flood', 'terminated');
    note('small', 'terminated');
    assert.equal(log.records.length, MAX_RECORDS + 1);
    ends.flush();
    assert.deepEqual(log.records.at(-1), {
      level: 'warn',
      message: MORE_ENDS,
      fields: { tenant: 'flood', ends: { 'cpu-limit': 5, terminated: 3 } },
    });
    note('flood', 'cpu-limit');
    assert.equal(log.records.at(-1)?.message, END_RECORDS.ended, 'the next window has records again');
    ends.flush();
    assert.equal(log.records.length, MAX_RECORDS + 3, 'a window without a surplus ends silently');
  });
});
