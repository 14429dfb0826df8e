import type { QuotaWindow } from './names.ts';

/** Spans of time in which usage is counted; all begin with theirs of UTC. */
export const SPANS = ['minute', 'hour', 'day', 'month'] as const;
export type Span = (typeof SPANS)[number];

const LENGTH_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const;

/** Number of the span that holds a time, as its counters in Redis are named: since the epoch, months since year 0. */
export function spanNumber(span: Span, atMs: number): number {
  if (span !== 'month') return Math.floor(atMs / LENGTH_MS[span]);
  const date = new Date(atMs);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/** When the span of that number begins, ms since the epoch. */
export function spanStart(span: Span, number: number): number {
  return span === 'month' ? Date.UTC(Math.floor(number / 12), number % 12, 1) : number * LENGTH_MS[span];
}

/** When the window that holds a time ends and the next begins, ms since the epoch. */
export function windowEnd(window: QuotaWindow, atMs: number): number {
  return spanStart(window, spanNumber(window, atMs) + 1);
}

/** How long the window that holds a time is. */
export function windowLength(window: QuotaWindow, atMs: number): number {
  return windowEnd(window, atMs) - spanStart(window, spanNumber(window, atMs));
}
