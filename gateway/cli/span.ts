import { Failure } from './failure.ts';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
/** Present time and span must fit into a `Date`, which holds at most 8.64e15 ms. */
const MAX_MS = 1e15;

/** Milliseconds of a duration such as `90s`, `15m`, `12h`, `30d`, `2w`. Throws {@link Failure} for any other text. */
export function parseSpan(text: string): number {
  const [, count, unit = ''] = /^(\d{1,9})([smhdw])$/.exec(text.trim()) ?? [];
  const ms = Number(count) * (UNITS[unit] ?? Number.NaN);
  if (ms <= MAX_MS) return ms;
  throw new Failure(`"${text}" is not a time span.`, { advice: 'Write a number and a unit: 90s, 15m, 12h, 30d, 2w.' });
}
