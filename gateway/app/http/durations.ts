/** Milliseconds of each unit. A number without a unit is in seconds. */
const UNITS: Readonly<Record<string, number>> = { '': 1000, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION = /^(\d{1,9})(ms|s|m|h|d)?$/;

/** Parses a duration such as `250ms`, `30s`, `5m`, `1h` or `2d` to milliseconds; a number alone is in seconds. Null for any other text. */
export function durationMs(text: string): number | null {
  const [, count, unit = ''] = DURATION.exec(text) ?? [];
  const factor = UNITS[unit];
  return count === undefined || factor === undefined ? null : Number(count) * factor;
}

/** Parses a time to ms since the epoch. The text is ISO 8601, or a duration with a unit that is subtracted from `nowMs`. Null for any other text. */
export function timeMs(text: string, nowMs: number): number | null {
  const agoMs = /[a-z]$/.test(text) ? durationMs(text) : null;
  if (agoMs !== null) return nowMs - agoMs;
  // Require year and month in digits: `Date.parse` accepts almost any text.
  const time = /^\d{4}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(time) ? null : time;
}
