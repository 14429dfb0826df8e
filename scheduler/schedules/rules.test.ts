import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { cronFault, nextAt } from './cron.ts';
import { LEAST_INTERVAL_MS, normalPattern, type Timing, timingFault } from './rules.ts';

const NOW = Date.UTC(2026, 10, 24, 12, 30, 15);
/** The member of a timing that is at fault; null when the timing is valid. */
const faultOf = (timing: Extract<Timing, { cron: string }>) =>
  timingFault(timing)?.field ?? (cronFault(timing, NOW) === null ? null : 'cron');
const fault = (cron: string, timezone = 'UTC') => faultOf({ cron, timezone });

test('a cron pattern has five fields, a time zone, and at least one time that fits', () => {
  for (const cron of ['0 3 * * *', '*/15 * * * *', '0 0 1 jan *', '30 8 * * mon-fri', '0 0 29 2 *', '0 9 * * THU'])
    assert.equal(fault(cron), null, cron);
  for (const cron of [
    '',
    '* * * *',
    '* * * * * *',
    '61 * * * *',
    '* 25 * * *',
    'a b c d e',
    '0 0 30 2 *',
    '@daily',
    'H 3 * * *',
    '0 H/6 * * *',
    '0 9 h * *',
    `${'1,'.repeat(70)}1 * * * *`,
  ])
    assert.equal(fault(cron), 'cron', cron);
  assert.equal(fault('0 3 * * *', 'Europe/Berlin'), null);
  for (const timezone of ['', 'Nowhere/Land', 'x'.repeat(100)]) assert.equal(fault('0 3 * * *', timezone), 'timezone');
  assert.equal(nextAt({ cron: '0 3 * * *', timezone: 'UTC' }, NOW), Date.UTC(2026, 10, 25, 3));
  assert.equal(nextAt({ cron: '0 3 * * *', timezone: 'Europe/Berlin' }, NOW), Date.UTC(2026, 10, 25, 2));
});

test('a pattern is refused without a search when none of its months has one of its days', () => {
  const noDay = (cron: string) => timingFault({ cron, timezone: 'UTC' })?.message;
  for (const cron of ['0 0 31 2,4,6,9,11 *', '0 0 30-31 feb ?', '0 0 31-31 4 *', '0 0 30/1 2 *', '0 0 31 apr-jun/2 *'])
    assert.match(noDay(cron) ?? '', /No time fits/, cron);
  for (const cron of [
    '0 0 29 2 *',
    '0 0 31 4-5 *',
    '0 0 */31 2 *',
    '0 0 31 2 mon',
    '0 0 ? * *',
    '0 0 L 2 *',
    '0 0 1,31 2 *',
  ])
    assert.equal(noDay(cron), undefined, cron);
});

test('the check for impossible days agrees with the search', () => {
  const day = fc.constantFrom('*', '29', '30', '31', '30-31', '28/2', '1,30', '31/2');
  const month = fc.constantFrom('*', '2', 'feb', '4', '2,4', 'apr-jun', '4/2', '6-9/3');
  fc.assert(
    fc.property(day, month, fc.constantFrom('*', '?', '1'), (...fields) => {
      const pattern = { cron: `0 0 ${fields.join(' ')}`, timezone: 'UTC' };
      const isRefused = timingFault(pattern) !== null;
      assert.equal(isRefused, cronFault(pattern, NOW) !== null, pattern.cron);
    }),
    { seed: 31, numRuns: 60 },
  );
});

test('any whitespace separates the fields of a pattern', () => {
  for (const cron of ['0 3 * * *', '0  3 * * *', ' 0 3 * * *', '\t0\t3 * *  *\n'])
    assert.equal(normalPattern(cron), '0 3 * * *', JSON.stringify(cron));
  for (const cron of ['  ', ' 0 3  * * ', ' 0 3 * * * * ']) assert.equal(fault(normalPattern(cron)), 'cron', cron);
});

test('an interval is at least a minute long', () => {
  for (const everyMs of [0, -1, 1.5, LEAST_INTERVAL_MS - 1, Number.NaN, Number.POSITIVE_INFINITY])
    assert.equal(timingFault({ everyMs })?.field, 'everyMs');
  assert.equal(timingFault({ everyMs: LEAST_INTERVAL_MS }), null);
});

test('no text makes the check of a pattern throw, and no accepted pattern fires twice within a minute', () => {
  const field = fc.stringMatching(/^[\d*,/-]{1,6}$/);
  const pattern = fc.oneof(
    fc.string(),
    fc.tuple(field, field, field, field, field).map((fields) => fields.join(' ')),
  );
  fc.assert(
    fc.property(pattern, (cron) => {
      const timing = { cron, timezone: 'UTC' };
      if (faultOf(timing) !== null) return;
      const first = nextAt(timing, NOW) ?? assert.fail();
      const second = nextAt(timing, first);
      assert.ok(first > NOW && (second === null || second - first >= LEAST_INTERVAL_MS), cron);
    }),
  );
});
