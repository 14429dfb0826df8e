import { html } from 'hono/html';
import type { HtmlEscapedString } from 'hono/utils/html';
import { bytes, DAY_MS, duration, HOUR, MINUTE, number, SECOND } from '../../amounts.ts';
import { isErrorCode } from '../../errors/codes.ts';
import { isRawNumber } from '../../http/json.ts';

interface Column {
  readonly head: string;
  /** Aligns the column's numbers. */
  readonly numeric?: boolean;
  /** Shows the heading to screen readers only, for example above a column of buttons. */
  readonly quiet?: boolean;
}

interface TableOptions {
  /** Shows the table unchanged in a narrow window. For tables with few, narrow columns. */
  readonly narrow?: boolean;
}

/**
 * A table that turns into one card per row in a narrow window. The explicit roles keep it a table for assistive technology when CSS
 * changes its display.
 */
export function table(
  caption: string,
  columns: readonly Column[],
  rows: readonly (readonly unknown[])[],
  { narrow = false }: TableOptions = {},
): Html {
  const heads = columns.map(
    ({ head, numeric, quiet }) =>
      html`<th scope="col" role="columnheader" class="${numeric ? 'number' : ''}"><span class="${quiet ? 'unseen' : ''}">${head}</span></th>`,
  );
  const lines = rows.map(
    (cells) =>
      html`<tr role="row">${cells.map((cell, index) => {
        const { head = '', numeric, quiet } = columns[index] ?? {};
        return html`<td role="cell" class="${numeric ? 'number' : ''}" data-label="${quiet ? '' : head}"><span>${cell}</span></td>`;
      })}</tr>`,
  );
  return html`<table class="${narrow ? '' : 'cards'}" role="table"><caption class="unseen">${caption}</caption><thead role="rowgroup"><tr role="row">${heads}</tr></thead><tbody role="rowgroup">${lines}</tbody></table>`;
}

export function facts(entries: readonly (readonly [name: string, value: unknown])[]): Html {
  return html`<dl class="facts">${entries.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

export function tile(name: string, value: unknown, note: unknown = ''): Html {
  return html`<div class="tile"><dt>${name}</dt><dd>${value}${note === '' ? NONE : html`<small>${note}</small>`}</dd></div>`;
}

export function tiles(...list: readonly Html[]): Html {
  return html`<dl class="tiles">${list}</dl>`;
}

/** The notice in place of missing content. `what` is missing, and `todo` says how to get it. */
export function empty(what: string, todo: Html | string = ''): Html {
  return html`<div class="empty"><p>${what}</p>${todo === '' ? NONE : html`<p class="muted">${todo}</p>`}</div>`;
}

/** A message about a failure or a success. */
export function notice(kind: 'bad' | 'good' | 'plain', text: unknown): Html {
  return html`<p class="notice ${kind}" role="${kind === 'bad' ? 'alert' : 'status'}">${text}</p>`;
}

const TONES: ReadonlyMap<string, string> = new Map([
  ['queued', 'wait'],
  ['running', 'busy'],
  ['waiting', 'wait'],
  ['succeeded', 'good'],
  ['failed', 'bad'],
  ['cancelled', 'quiet'],
]);

/** A status word, with a mark in its colour. */
export function badge(word: string, tone = TONES.get(word) ?? 'quiet'): Html {
  return html`<span class="badge ${tone}">${word}</span>`;
}

/** A bar for a fraction from 0 to 1. The caller shows the numbers beside the bar. A bar changes its colour as it fills, unless it is neutral. */
export function bar(part: number, label: string, neutral = false): Html {
  const fraction = Math.min(1, Math.max(0, part));
  let tone = 'busy';
  if (!neutral && fraction >= 1) tone = 'bad';
  else if (!neutral && fraction >= 0.8) tone = 'wait';
  // Any value above 0 stays visible.
  const width = fraction === 0 ? 0 : Math.max(1.5, fraction * 100);
  return html`<svg class="bar ${tone}" role="img" aria-label="${label}" width="100%" height="8"><rect class="track" width="100%" height="8" rx="4"/><rect class="fill" width="${width.toFixed(1)}%" height="8" rx="4"/></svg>`;
}

/** An error code, linked to its documentation page if it has one. */
export function code(name: string): Html {
  return isErrorCode(name) ? html`<a href="/docs/errors/${name}"><code>${name}</code></a>` : html`<code>${name}</code>`;
}

/** The session's form token, a hidden field of every form. */
export function tokenField(formToken: string): Html {
  return html`<input type="hidden" name="token" value="${formToken}">`;
}

/** Markup in which every inserted value is escaped. */
export type Html = HtmlEscapedString | Promise<HtmlEscapedString>;

export { html };

export const NONE: Html = html``;

/** The text of markup, once all its promises have resolved. */
export async function textOf(markup: Html): Promise<string> {
  return String(await markup);
}

interface Frame {
  readonly title: string;
  /** The page's entry in the navigation. */
  readonly place?: Place;
  /** The signed-in key; absent on pages before sign-in. */
  readonly signedIn?: {
    readonly tenant: string;
    readonly keyId: string;
    readonly admin: boolean;
    readonly operator: boolean;
    readonly formToken: string;
  };
  /** Address of the event stream from which the script updates the page; absent when the page stays as it is. */
  readonly live?: string | undefined;
  readonly body: Html;
}

const PLACES = [
  { place: 'overview', href: '/dashboard', name: 'Overview' },
  { place: 'invocations', href: '/dashboard/invocations', name: 'Invocations' },
  { place: 'functions', href: '/dashboard/functions', name: 'Functions' },
  { place: 'playground', href: '/dashboard/playground', name: 'Playground' },
  { place: 'usage', href: '/dashboard/usage', name: 'Usage' },
  { place: 'administration', href: '/dashboard/administration', name: 'Administration' },
  { place: 'platform', href: '/dashboard/platform', name: 'Platform' },
] as const;
export type Place = (typeof PLACES)[number]['place'];

export function layout({ title, place, signedIn, live, body }: Frame): Html {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} – Pie</title>
<link rel="icon" href="/dashboard/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/assets/style.css">
<script src="/dashboard/assets/live.js" defer></script>
</head>
<body${live === undefined ? NONE : html` data-live="${live}"`}>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><div class="inner">
<a class="brand" href="/dashboard"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><circle cx="12" cy="12" r="10" class="crust"/><path d="M12 12V3.2A8.8 8.8 0 0 1 20.8 12z" class="slice"/></svg>Pie</a>
${signedIn === undefined ? NONE : navigation(place, signedIn)}
</div></header>
<main id="main" tabindex="-1">
${body}
</main>
<footer class="bottom"><div class="inner"><span>Times are UTC.</span><a href="/docs">API documentation</a>${
    live === undefined
      ? NONE
      : html`<span id="live-state" class="live-state" role="status"></span><noscript><span>Reload the page to see what changed.</span></noscript>`
  }</div></footer>
</body>
</html>
`;
}

function navigation(
  place: Place | undefined,
  { tenant, keyId, admin, operator, formToken }: NonNullable<Frame['signedIn']>,
) {
  const visiblePlaces = PLACES.filter((entry) => {
    if (entry.place === 'platform') return operator;
    return entry.place !== 'administration' || admin;
  });
  const links = visiblePlaces.map(
    (entry) =>
      html`<li><a href="${entry.href}"${entry.place === place ? html` aria-current="page"` : NONE}>${entry.name}</a></li>`,
  );
  return html`<nav aria-label="Pages"><ul>${links}</ul></nav>
<div class="who"><span title="Signed in with ${keyId}"><span class="unseen">Tenant </span>${tenant}</span>
<form method="post" action="/dashboard/sign-out">${tokenField(formToken)}<button class="link">Sign out</button></form></div>`;
}

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
