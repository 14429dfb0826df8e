import { bytes, DAY_MS, duration, HOUR, MINUTE, number, SECOND } from '../../amounts.ts';
import { isRawNumber } from '../../http/exact-json.ts';
import { type Html, html } from './html.ts';

export { bytes, duration, number, quotaAmount } from '../../amounts.ts';

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const EXACT = new Intl.NumberFormat('en', { maximumFractionDigits: 20 });
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const DAY = new Intl.DateTimeFormat('en', { month: 'short', day: 'numeric', timeZone: 'UTC' });
const CLOCK = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  timeZone: 'UTC',
});

/** All digits: `1,024`, `0.05`. */
export function exact(value: number): string {
  return EXACT.format(value);
}

/** `12.3K`, for tiles. */
export function compact(value: number): string {
  return Math.abs(value) < 10_000 ? number(value) : COMPACT.format(value);
}

/** `25%`. */
export function percent(part: number): string {
  return `${WHOLE.format(part * 100)}%`;
}

/** A moment in UTC: only the time of day on the day of `now`, else with the date. */
export function moment(iso: string, now: number): Html {
  const at = Date.parse(iso);
  const isToday = Math.floor(at / DAY_MS) === Math.floor(now / DAY_MS);
  const text = isToday ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
  return html`<time datetime="${iso}" title="${iso}">${text}</time>`;
}

/** `in 4 min`, in one coarse unit, so that the text changes seldom. */
export function until(iso: string, now: number): Html {
  const remainingMs = Math.max(0, Date.parse(iso) - now);
  const rounded =
    remainingMs < MINUTE
      ? Math.ceil(remainingMs / (10 * SECOND)) * 10 * SECOND
      : Math.ceil(remainingMs / MINUTE) * MINUTE;
  const text =
    remainingMs === 0 ? 'now' : `in ${duration(remainingMs < HOUR ? rounded : Math.ceil(remainingMs / HOUR) * HOUR)}`;
  return html`<time datetime="${iso}" title="${iso}">${text}</time>`;
}

/** A prefix of a content hash, long enough to tell versions apart. */
export function shortVersion(version: string): string {
  return version.length > 12 ? version.slice(0, 12) : version;
}

/** Labels a usage counter, `outputTokens` as `Output tokens`, and formats its value in its unit. */
export function measured(name: string, value: unknown): { readonly label: string; readonly text: string } {
  const [unit] = /(Ms|Bytes)$/.exec(name) ?? [''];
  const words = name
    .replace(/Ms$/, 'Time')
    .replace(/Bytes$/, '')
    .replaceAll(/([A-Z])/g, ' $1')
    .toLowerCase()
    .replaceAll(/\b(cpu|gpu|kv)\b/g, (word) => word.toUpperCase());
  const label = words.charAt(0).toUpperCase() + words.slice(1);
  if (typeof value !== 'number') return { label, text: JSON.stringify(value) ?? '' };
  return { label, text: unit === 'Ms' ? duration(value) : unit === 'Bytes' ? bytes(value) : number(value) };
}

/** Text in which backticks become code. */
export function prose(text: string): Html {
  return html`${text.split(/`([^`]+)`/).map((piece, index) => (index % 2 === 1 ? html`<code>${piece}</code>` : piece))}`;
}

/** Characters of indentation from which on a value stays on one line: deep nesting would give more indentation than text. */
const MAX_INDENT = 64;

/** Readable JSON: indented, with lists of plain values on one line. */
export function jsonText(value: unknown, indent = ''): string {
  if (typeof value !== 'object' || value === null || isRawNumber(value) || indent.length >= MAX_INDENT)
    return JSON.stringify(value) ?? 'null';
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const items = value.map((item) => jsonText(item, inner));
    const hasPlainItems = value.every((item) => typeof item !== 'object' || item === null);
    return hasPlainItems ? `[${items.join(', ')}]` : `[\n${inner}${items.join(`,\n${inner}`)}\n${indent}]`;
  }
  const members = Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}: ${jsonText(member, inner)}`);
  return members.length === 0 ? '{}' : `{\n${inner}${members.join(`,\n${inner}`)}\n${indent}}`;
}
