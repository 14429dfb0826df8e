import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DeviceTime, Meter, PageTurnover } from './meter.ts';

const tokenCounts = fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 300, size: 'max' });

/** One payer per part of a step, with the part's number of tokens. */
const payers = (tokens: readonly number[]) =>
  tokens.map((count) => ({ tokens: count, meter: new Meter(() => undefined) }));
const tokensOf = ({ tokens }: { tokens: number }) => tokens;
const meterOf = ({ meter }: { meter: Meter }) => meter;

function failOnReport(text: string): never {
  throw new Error(text);
}

test('the shares of a step are whole nanoseconds in proportion to tokens, add up, and are exact to 1 ns', () => {
  fc.assert(
    fc.property(fc.nat({ max: 1e12 }), tokenCounts, (total, tokens) => {
      const parts = payers(tokens);
      const time = new DeviceTime();
      time.spend(total / 1e6, parts, tokensOf, meterOf);
      const sum = tokens.reduce((all, one) => all + one, 0);
      assert.equal(
        parts.reduce((all, { meter }) => all + meter.deviceNs, 0),
        total,
      );
      for (const { tokens: count, meter } of parts) {
        assert.ok(Number.isInteger(meter.deviceNs) && meter.deviceNs >= 0);
        assert.ok(Math.abs(meter.deviceNs - total * (count / sum)) <= 1 + total * 1e-12);
      }
    }),
    { seed: 20261, numRuns: 500 },
  );
});

test('all device time is charged, and in the long run each call pays for its tokens', () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.double({ min: 0, max: 50, noNaN: true }), tokenCounts), { maxLength: 40, size: 'max' }),
      (steps) => {
        const time = new DeviceTime();
        const meters = Array.from({ length: 300 }, () => new Meter(() => undefined));
        const fairNs = new Float64Array(meters.length);
        for (const [ms, tokens] of steps) {
          const parts = tokens.map((count, i) => ({ meter: meters[i] as Meter, tokens: count }));
          time.spend(ms, parts, tokensOf, meterOf);
          const sum = tokens.reduce((all, one) => all + one, 0);
          for (const [i, count] of tokens.entries()) fairNs[i] = (fairNs[i] as number) + (ms * 1e6 * count) / sum;
        }
        time.check(failOnReport);
        assert.equal(
          meters.reduce((sum, { deviceNs }) => sum + deviceNs, 0),
          time.spentNs,
        );
        for (const [i, { deviceNs }] of meters.entries())
          assert.ok(Math.abs(deviceNs - (fairNs[i] as number)) <= 2 * steps.length);
      },
    ),
    { seed: 20262, numRuns: 100 },
  );
});

test('years of steps add up to the nanosecond, and time without a payer is reported once', () => {
  const time = new DeviceTime();
  const [first] = payers([1]);
  assert.ok(first);
  // 1e11 ms are more than 2^53 ns, above which 64-bit floats no longer hold every whole number.
  time.spendFor(1e11, first.meter);
  for (let i = 0; i < 100; i++) time.spend(0.000_333, payers([7, 3, 5]), tokensOf, meterOf);
  time.check(failOnReport);
  time.spend(0.000_005, payers([]), tokensOf, meterOf);
  const reports: string[] = [];
  for (let i = 0; i < 2; i++) time.check((text) => reports.push(text));
  assert.deepEqual(reports, ['5 ns of device time were charged to no inferlet']);
});

test('pages count for as long as they are held', () => {
  let nowMs = 0;
  let changes = 0;
  const meter = new Meter(
    () => changes++,
    () => nowMs,
  );
  nowMs = 100;
  meter.hold(3);
  nowMs = 110;
  meter.hold(-1);
  nowMs = 130;
  assert.equal(meter.pageMs, 3 * 10 + 2 * 20);
  meter.hold(-2);
  nowMs = 1000;
  assert.equal(meter.pageMs, 70);
  assert.equal(meter.pages, 0);
  assert.equal(changes, 3);
});

test('the retry hint follows the rate at which pages came free, within bounds', () => {
  const turnover = new PageTurnover();
  assert.equal(turnover.retryAfterMs(10, 0), 60_000, 'nothing came free');
  for (let ms = 0; ms <= 60_000; ms += 10) turnover.freed(1, ms);
  const hint = turnover.retryAfterMs(500, 60_000);
  assert.ok(Math.abs(hint - 5000) < 50, `100 pages a second give 500 in 5 s, not ${hint} ms`);
  assert.equal(turnover.retryAfterMs(1, 60_000), 1000);
  assert.equal(turnover.retryAfterMs(1_000_000, 60_000), 60_000);
  assert.ok(turnover.retryAfterMs(500, 90_000) > hint * 5, 'pages that came free long ago count for little');
});
