import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { SPANS, type Span } from '../../bounds.ts';
import type { UsageRow } from '../../control.ts';
import { textOf } from '../html/parts.ts';
import type { Visit } from '../page.ts';
import { bySpan, spanNames, usageCharts, usagePage } from './usage.ts';

const row = (at: string, outputTokens: number): UsageRow => ({
  at,
  tenant: 'default',
  function: null,
  requests: 0,
  invocations: 1,
  succeeded: 0,
  failed: 0,
  cancelled: 0,
  inputTokens: 0,
  outputTokens,
  cachedTokens: 0,
  gpuMs: 0,
  cpuMs: 0,
  wallMs: 0,
  queuedMs: 0,
  pageSeconds: 0,
});
const NOW = Date.parse('2026-03-01T10:30:00Z');

test('each hour, day or month in a chart has the sum of its rows, 0 without rows', () => {
  const hours = bySpan([row('2026-03-01T10:00:00Z', 5), row('2026-02-28T11:00:00Z', 7)], 'hour', 'outputTokens', NOW);
  assert.deepEqual([hours.length, hours.at(-1), hours[0], hours[1]], [24, 5, 7, 0]);
  const days = bySpan([row('2026-02-28T00:00:00Z', 3), row('2026-01-30T00:00:00Z', 9)], 'day', 'outputTokens', NOW);
  assert.deepEqual([days.length, days.at(-2), days[0]], [31, 3, 9]);
  const months = bySpan([row('2025-04-01T00:00:00Z', 2), row('2025-03-01T00:00:00Z', 4)], 'month', 'outputTokens', NOW);
  assert.deepEqual([months.length, months[0], months.at(-1)], [12, 2, 0], 'March of last year is out of the chart');
});

test('each hour, day or month has its name in UTC', () => {
  const ends = (by: Span) => [spanNames(by, NOW)[0], spanNames(by, NOW).at(-1)];
  assert.deepEqual(ends('hour'), ['2026-02-28 11:00', '2026-03-01 10:00']);
  assert.deepEqual(ends('day'), ['2026-01-30', '2026-03-01']);
  assert.deepEqual(ends('month'), ['2025-04', '2026-03']);
});

test('the page asks for the usage from the start of the first shown hour, day or month', async () => {
  const askedFrom = async (by: Span, now: number) => {
    let asked: string | undefined;
    const quotas = {
      async usage(_call: unknown, { from }: { readonly from: string }) {
        asked = from;
        return [];
      },
    };
    const url = new URL(`http://gateway/dashboard/usage?by=${by}`);
    const visit = { control: { quotas }, call: { principal: { tenant: 'default' } }, now, url } as unknown as Visit;
    await usagePage(visit)
      .fragments.find(({ id }) => id === 'usage')
      ?.render();
    return asked;
  };
  assert.equal(await askedFrom('hour', NOW), '2026-02-28T11:00:00.000Z');
  assert.equal(await askedFrom('day', NOW), '2026-01-30T00:00:00.000Z');
  const months = [];
  for (const day of ['2026-01-30', '2026-01-31', '2026-12-01', '2024-10-31', '2024-02-29'])
    months.push(await askedFrom('month', Date.parse(`${day}T10:30:00Z`)));
  assert.deepEqual(
    months.map((at) => at?.slice(0, 10)),
    ['2025-02-01', '2025-02-01', '2026-01-01', '2023-11-01', '2023-03-01'],
  );
});

test('the values of a chart sum to the sum of the rows, and no number breaks the markup', async () => {
  // All rows lie within 20 hours, so even the shortest chart (24 hours) shows each of them.
  const minutes = fc.integer({ min: 0, max: 20 * 60 });
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(minutes, fc.nat(1e9))), async (list) => {
      const rows = list.map(([minutesAgo, tokens]) => row(new Date(NOW - minutesAgo * 60_000).toISOString(), tokens));
      const sum = list.reduce((total, [, tokens]) => total + tokens, 0);
      for (const by of SPANS) {
        const values = bySpan(rows, by, 'outputTokens', NOW);
        assert.equal(
          values.reduce((total, value) => total + value, 0),
          sum,
        );
        assert.doesNotMatch(await textOf(usageCharts(rows, by, NOW)), /NaN|Infinity|undefined/);
      }
    }),
    { seed: 17 },
  );
});
