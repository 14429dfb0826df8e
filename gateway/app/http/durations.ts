const UNITS: Readonly<Record<string, number>> = { '': 1000, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DURATION = /^(\d{1,9})(ms|s|m|h|d)?$/;

/** `30`, `30s`, `5m`, `1h`, `2d` in milliseconds; a number alone counts seconds. Null for anything else. */
export function durationMs(text: string): number | null {
  const [, count, unit = ''] = DURATION.exec(text) ?? [];
  const factor = UNITS[unit];
  return count === undefined || factor === undefined ? null : Number(count) * factor;
}

/** ISO 8601, or a duration before now, in ms since the epoch. Null for anything else. */
export function timeMs(text: string, nowMs: number): number | null {
  const ago = /[a-z]$/.test(text) ? durationMs(text) : null;
  if (ago !== null) return nowMs - ago;
  // Require the year and the month: `Date.parse` accepts almost anything.
  const time = /^\d{4}-\d{2}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(time) ? null : time;
}
