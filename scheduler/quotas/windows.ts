import type { QuotaWindow } from './names.ts';

/** Spans of time in which usage is counted; each begins with a minute, hour, day or month of UTC. */
export const SPANS = ['minute', 'hour', 'day', 'month'] as const;
export type Span = (typeof SPANS)[number];

const LENGTH_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const;

/** Number of the span that contains a time, as in the keys of its counters: spans since the epoch, or months since year 0. */
export function spanNumber(span: Span, atMs: number): number {
  if (span !== 'month') return Math.floor(atMs / LENGTH_MS[span]);
  const date = new Date(atMs);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/** Start of the span with that number, ms since the epoch. */
export function spanStart(span: Span, number: number): number {
  return span === 'month' ? Date.UTC(Math.floor(number / 12), number % 12, 1) : number * LENGTH_MS[span];
}

/** End of the window that contains a time, and start of the next one, ms since the epoch. */
export function windowEnd(window: QuotaWindow, atMs: number): number {
  return spanStart(window, spanNumber(window, atMs) + 1);
}

export function windowLength(window: QuotaWindow, atMs: number): number {
  return windowEnd(window, atMs) - spanStart(window, spanNumber(window, atMs));
}
