import type { Span, UsageRow } from '../../resources/quotas.ts';
import { columns } from '../html/chart.ts';
import { compact, duration, number } from '../html/format.ts';
import { type Html, html } from '../html/html.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** A span is an hour, a day or a month. For each kind: the number of spans in a chart, and the labels of the first and the last one. */
const AXES: Readonly<Record<Span, { readonly count: number; readonly from: string; readonly to: string }>> = {
  hour: { count: 24, from: '23 h ago', to: 'this hour' },
  day: { count: 31, from: '30 days ago', to: 'today' },
  month: { count: 12, from: '11 months ago', to: 'this month' },
};

/** Number of the span that a time belongs to, in UTC. Hours and days count from the Unix epoch, months from the year 0. */
function spanOf(at: number, by: Span): number {
  if (by === 'hour') return Math.floor(at / HOUR_MS);
  if (by === 'day') return Math.floor(at / DAY_MS);
  const date = new Date(at);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/** The names of the shown spans, oldest first. */
export function spanNames(by: Span, now: number): readonly string[] {
  const { count } = AXES[by];
  const first = spanOf(now, by) - count + 1;
  return Array.from({ length: count }, (_, index) => spanName(by, first + index));
}

/** Start of the first shown span. */
export function firstShown(by: Span, now: number): Date {
  return spanStart(by, spanOf(now, by) - AXES[by].count + 1);
}

function spanStart(by: Span, span: number): Date {
  if (by === 'hour') return new Date(span * HOUR_MS);
  return new Date(by === 'day' ? span * DAY_MS : Date.UTC(Math.floor(span / 12), span % 12));
}

function spanName(by: Span, span: number): string {
  const start = spanStart(by, span).toISOString();
  if (by === 'hour') return start.slice(0, 16).replace('T', ' ');
  // `2026-03-01` for a day, `2026-03` for a month.
  return start.slice(0, by === 'day' ? 10 : 7);
}

/** For each shown span, oldest first, the sum of a member over the rows of the span; 0 for a span without a row. */
export function bySpan(
  rows: readonly UsageRow[],
  by: Span,
  member: 'invocations' | 'failed' | 'outputTokens' | 'gpuMs',
  now: number,
): readonly number[] {
  const { count } = AXES[by];
  const first = spanOf(now, by) - count + 1;
  const sums = Array<number>(count).fill(0);
  for (const row of rows) {
    const index = spanOf(Date.parse(row.at), by) - first;
    if (index >= 0 && index < count) sums[index] = (sums[index] ?? 0) + row[member];
  }
  return sums;
}

/** Invocations, failures, tokens and device time over a day, a month or a year. */
export function usageCharts(rows: readonly UsageRow[], by: Span, now: number): Html {
  const { from, to } = AXES[by];
  const names = spanNames(by, now);
  const chart = (name: string, member: Parameters<typeof bySpan>[2], format = compact, exact = number) =>
    html`<div><h3>${name}</h3>${columns({ name, values: bySpan(rows, by, member, now) }, names, { label: `${name} by ${by}`, format, exact, from, to })}</div>`;
  return html`<div class="charts">${chart('Invocations', 'invocations')}${chart('Failed', 'failed')}${chart('Output tokens', 'outputTokens')}${chart('GPU time', 'gpuMs', duration, duration)}</div>`;
}
