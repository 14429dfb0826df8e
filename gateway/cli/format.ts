import type { Tenant } from '../app/control.ts';
import { Failure } from './failure.ts';

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** A size with its unit, such as `1.9 MiB`. */
export function bytes(count: number): string {
  let scaled = count;
  let unit = 0;
  for (; scaled >= 1024 && unit < SIZES.length - 1; unit += 1) scaled /= 1024;
  return `${unit === 0 ? scaled : scaled.toFixed(1)} ${SIZES[unit]}`;
}

/** A time with its unit: `850 ms`, `1.2 s`, `3 min` (up to two hours), `5 h` (up to two days), `12 d`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 2 * 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 2 * 86_400_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** The time since an ISO 8601 time, such as `5 s ago`. */
export function ago(time: string, now = Date.now()): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86_400)} d ago`;
}

/** Quotes a word for the shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A count with its noun: `1 token`, `2 tokens`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** A number such as `1,234,567`, with at most three decimals. */
export function number(count: number): string {
  return count.toLocaleString('en', { maximumFractionDigits: 3 });
}

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

/** Latency targets. `false` stands for none: commander would replace a null from the parser of an option by an empty text. */
export type Targets = NonNullable<Tenant['latency']> | false;

export const latency = (help: string) =>
  ({
    flags: '--latency <targets>',
    help: `${help}: milliseconds to the first token and for each later one (such as 300,40), or none`,
    parse: parseTargets,
  }) as const;

/** Latency targets in words, such as `300 ms, then 40 ms a token`. */
export function targetsText(targets: Tenant['latency']): string {
  if (targets === null) return 'none';
  return `${duration(targets.firstTokenMs)}, then ${duration(targets.perTokenMs)} a token`;
}

/** Checks only the form. `pie deploy` checks the bounds of a function's targets with its manifest; the gateway checks those of a tenant. */
function parseTargets(text: string): Targets {
  if (text === 'none') return false;
  const [, first, each] = /^(\d{1,6}),(\d{1,6})$/.exec(text) ?? [];
  if (first === undefined || each === undefined)
    throw new Failure(`"${text}" is neither two numbers of milliseconds, such as 300,40, nor "none".`);
  return { firstTokenMs: Number(first), perTokenMs: Number(each) };
}

/** The parser of an option that takes a whole number from `min` to `max`. */
export const wholeNumber =
  (min: number, max: number) =>
  (text: string): number => {
    const number = Number(text);
    // `Number` also takes the empty text, and forms such as 1e2 and 0x10.
    if (/^\d+$/.test(text) && number >= min && number <= max) return number;
    throw new Failure(`It must be a whole number from ${min} to ${max}.`);
  };
