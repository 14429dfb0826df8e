import { type QuotaName, quotaUnit } from '#scheduler/quotas/names.ts';

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** Units of time, in milliseconds. */
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY_MS = 24 * HOUR;

/** `12,345`; small numbers with one decimal. */
export function number(value: number): string {
  return Math.abs(value) < 100 ? SHORT.format(value) : WHOLE.format(value);
}

/** `0.4 ms`, `12.5 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(ms: number): string {
  if (ms < SECOND) return `${number(ms)} ms`;
  if (ms < MINUTE) return `${SHORT.format(ms / SECOND)} s`;
  const [large, largeMs, small, smallMs] =
    ms < HOUR ? ['min', MINUTE, 's', SECOND] : ms < DAY_MS ? ['h', HOUR, 'min', MINUTE] : ['d', DAY_MS, 'h', HOUR];
  const largeCount = Math.floor(ms / Number(largeMs));
  const smallCount = Math.floor((ms % Number(largeMs)) / Number(smallMs));
  return smallCount === 0
    ? `${WHOLE.format(largeCount)} ${large}`
    : `${WHOLE.format(largeCount)} ${large} ${smallCount} ${small}`;
}

/** `1.5 MiB`. */
export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let scaled = value;
  let unit = 0;
  for (; scaled >= 1024 && unit < units.length - 1; unit += 1) scaled /= 1024;
  return `${SHORT.format(scaled)} ${units[unit]}`;
}

/** An amount in the unit of its quota. */
export function quotaAmount(quota: QuotaName, value: number): string {
  const unit = quotaUnit(quota);
  return unit === 'bytes' ? bytes(value) : unit === 'milliseconds' ? duration(value) : number(value);
}
