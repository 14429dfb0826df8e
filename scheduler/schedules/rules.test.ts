import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { LEAST_INTERVAL_MS, normalPattern, type Timing, timingFault } from './rules.ts';
import { cronFault, nextAt } from './schedules.ts';

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

test('a pattern is refused when none of its months has one of its days', () => {
  for (const cron of ['0 0 31 2,4,6,9,11 *', '0 0 30-31 feb ?', '0 0 31-31 4 *', '0 0 30/1 2 *', '0 0 31 apr-jun/2 *'])
    assert.match(cronFault({ cron, timezone: 'UTC' }, NOW) ?? '', /No time fits/, cron);
  for (const cron of [
    '0 0 29 2 *',
    '0 0 31 4-5 *',
    '0 0 */31 2 *',
    '0 0 31 2 mon',
    '0 0 ? * *',
    '0 0 L 2 *',
    '0 0 1,31 2 *',
  ])
    assert.equal(fault(cron), null, cron);
});

test('lists may name a value twice, and ranges may go over the end of their field', () => {
  const times = (cron: string, count: number) => {
    const found: string[] = [];
    for (let at = NOW; found.length < count; ) {
      at = nextAt({ cron, timezone: 'UTC' }, at) ?? assert.fail(cron);
      found.push(new Date(at).toISOString().slice(5, 16));
    }
    return found;
  };
  // Each pattern, and one with the same times in the plainest form. The first time is after Tuesday, 24 November, 12:30.
  for (const [cron, plain] of [
    ['0 9 * * 0,7', '0 9 * * 0'],
    ['0,*/15 * * * *', '0,15,30,45 * * * *'],
    ['5,5 * * * *', '5 * * * *'],
    ['*/30,10-20/5,15 * * * *', '0,10,15,20,30 * * * *'],
    ['0 0 * * FRI-SUN', '0 0 * * 0,5,6'],
    ['0 0 * * fri-mon', '0 0 * * 0,1,5,6'],
    ['0 0 * * 6-1,wed', '0 0 * * 0,1,3,6'],
    ['0 0 * * 7-2', '0 0 * * 0,1,2'],
    ['0 0 * * sat-tue/2', '0 0 * * 1,6'],
    ['0 22-2 * * *', '0 0,1,2,22,23 * * *'],
    ['0 22-4/3 * * *', '0 1,4,22 * * *'],
    ['50-10/10 * * * *', '0,10,50 * * * *'],
    ['0 0 1 nov-feb *', '0 0 1 1,2,11,12 *'],
    ['0 0 30-2 * *', '0 0 1,2,30,31 * *'],
    ['5/15 * * * *', '5,20,35,50 * * * *'],
    ['0 0 * * 5/1', '0 0 * * 5,6'],
    ['*/70 * * * *', '0 * * * *'],
    ['0 0 * * Mon,WED-fri/2', '0 0 * * 1,3,5'],
  ] as const)
    assert.deepEqual(times(cron, 20), times(plain, 20), cron);
  for (const cron of [
    '0 0 * * 8',
    '0 0 * * 5-9',
    '60-2 * * * *',
    '0 25-2 * * *',
    '0 0 0-5 * *',
    '*-5 * * * *',
    '5-1/0 * * * *',
    '1,,2 * * * *',
    '0 0 * * L',
  ])
    assert.equal(fault(cron), 'cron', cron);
});

test('a time that the local clock skips comes once, at the first instant after the gap', () => {
  for (const [timezone, cron, from, expected] of [
    ['America/Santiago', '0 0 * * *', '2026-09-05T12:00Z', ['2026-09-06T04:00Z', '2026-09-07T03:00Z']],
    ['Africa/Cairo', '0 0 * * *', '2026-04-23T12:00Z', ['2026-04-23T22:00Z', '2026-04-24T21:00Z']],
    ['Asia/Beirut', '0 0 * * *', '2026-03-28T12:00Z', ['2026-03-28T22:00Z', '2026-03-29T21:00Z']],
    ['Asia/Beirut', '30 0 * * *', '2026-03-28T12:00Z', ['2026-03-28T22:00Z', '2026-03-29T21:30Z']],
    ['Asia/Beirut', '0 0 29 3 *', '2026-03-28T12:00Z', ['2026-03-28T22:00Z', '2027-03-28T21:00Z']],
    ['Asia/Beirut', '0,30 0,1 * * *', '2026-03-28T12:00Z', ['2026-03-28T22:00Z', '2026-03-28T22:30Z']],
    ['America/Havana', '0 0 * * sun', '2026-03-07T12:00Z', ['2026-03-08T05:00Z', '2026-03-15T04:00Z']],
    ['Europe/Berlin', '30 2 * * *', '2026-03-28T12:00Z', ['2026-03-29T01:00Z', '2026-03-30T00:30Z']],
    ['Europe/Berlin', '*/30 * * * *', '2026-03-29T00:40Z', ['2026-03-29T01:00Z', '2026-03-29T01:30Z']],
    // A clock that is set back shows the time twice.
    ['Europe/Berlin', '30 2 * * *', '2026-10-24T12:00Z', ['2026-10-25T00:30Z', '2026-10-26T01:30Z']],
    ['America/Havana', '0 0 * * *', '2026-10-31T12:00Z', ['2026-11-01T04:00Z', '2026-11-02T05:00Z']],
  ] as const) {
    let at = Date.parse(from);
    for (const time of expected) {
      at = nextAt({ cron, timezone }, at) ?? assert.fail();
      assert.equal(new Date(at).toISOString(), new Date(time).toISOString(), `${timezone} ${cron}`);
    }
  }
});

test('a daily schedule fires once on each local day, whatever the clock does', () => {
  const timezone = fc.constantFrom(
    'America/Santiago',
    'Africa/Cairo',
    'Asia/Beirut',
    'America/Havana',
    'Europe/Berlin',
    'Australia/Lord_Howe',
    'UTC',
  );
  fc.assert(
    fc.property(
      timezone,
      fc.nat(23),
      fc.nat(59),
      fc.integer({ min: 2020, max: 2035 }),
      (timezone, hour, minute, year) => {
        const dayOf = new Intl.DateTimeFormat('sv', { timeZone: timezone }).format;
        let at = Date.UTC(year, 0, 1, 12);
        for (let i = 0; i < 370; i++) {
          const before = at;
          at = nextAt({ cron: `${minute} ${hour} * * *`, timezone }, at) ?? assert.fail();
          const days = Math.round((Date.parse(dayOf(at)) - Date.parse(dayOf(before))) / 86_400_000);
          assert.ok(days === 1 || (i === 0 && days === 0), `${timezone} ${new Date(at).toISOString()}`);
        }
      },
    ),
    { seed: 5, numRuns: 12 },
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
