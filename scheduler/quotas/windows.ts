import type { QuotaWindow } from './names.ts';

/** Kinds of spans in which usage is counted. A span is one minute, hour, day or month of UTC. The windows of quotas are spans other than hours. */
export const SPANS = ['minute', 'hour', 'day', 'month'] as const;
export type Span = (typeof SPANS)[number];

/** Lengths of the spans whose length is fixed: only months differ. */
const LENGTH_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const;

/** Number of the span that contains the time `atMs`, as in the keys of usage counters. Months count from year 0, other spans from the epoch. */
export function spanNumber(span: Span, atMs: number): number {
  if (span !== 'month') return Math.floor(atMs / LENGTH_MS[span]);
  const date = new Date(atMs);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/** Start of a span, in ms since the epoch. `number` is the span's number as returned by {@link spanNumber}. */
export function spanStart(span: Span, number: number): number {
  return span === 'month' ? Date.UTC(Math.floor(number / 12), number % 12, 1) : number * LENGTH_MS[span];
}

/** End of the window that contains the time `atMs`, in ms since the epoch. The next window starts at this end. */
export function windowEnd(window: QuotaWindow, atMs: number): number {
  return spanStart(window, spanNumber(window, atMs) + 1);
}

/** Length in ms of the window that contains the time `atMs`. */
export function windowLength(window: QuotaWindow, atMs: number): number {
  return windowEnd(window, atMs) - spanStart(window, spanNumber(window, atMs));
}
