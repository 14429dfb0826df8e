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

/** A number with all its digits: `1,024`, `0.05`. */
export function exact(value: number): string {
  return EXACT.format(value);
}

/** A short number for tiles: `12.3K`. */
export function compact(value: number): string {
  return Math.abs(value) < 10_000 ? number(value) : COMPACT.format(value);
}

/** A fraction as whole percents: `25%`. */
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

/** The time until a moment: `in 4 min`. It is rounded up to a coarse unit, so that the text changes seldom. */
export function until(iso: string, now: number): Html {
  const remainingMs = Math.max(0, Date.parse(iso) - now);
  const text = remainingMs === 0 ? 'now' : `in ${duration(roundedUp(remainingMs))}`;
  return html`<time datetime="${iso}" title="${iso}">${text}</time>`;
}

function roundedUp(ms: number): number {
  let unit = HOUR;
  if (ms < MINUTE) unit = 10 * SECOND;
  else if (ms < HOUR) unit = MINUTE;
  return Math.ceil(ms / unit) * unit;
}

/** A prefix of a content hash, long enough to tell versions apart. */
export function shortVersion(version: string): string {
  return version.length > 12 ? version.slice(0, 12) : version;
}

/** The label of a usage counter (`Output tokens` for `outputTokens`), and its value as text in its unit. */
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
  if (unit === 'Ms') return { label, text: duration(value) };
  return { label, text: unit === 'Bytes' ? bytes(value) : number(value) };
}

/** Text in which backticks become code. */
export function prose(text: string): Html {
  return html`${text.split(/`([^`]+)`/).map((piece, index) => (index % 2 === 1 ? html`<code>${piece}</code>` : piece))}`;
}

/** A value that is indented by this many characters stays on one line. Otherwise deeply nested JSON would have more indentation than text. */
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
