import { isErrorCode } from '../../errors/codes.ts';
import { type Html, html, NONE } from './html.ts';

export interface Column {
  readonly head: string;
  /** Aligns the column's numbers. */
  readonly numeric?: boolean;
  /** Shows the heading to screen readers only, for example above a column of buttons. */
  readonly quiet?: boolean;
}

export interface TableOptions {
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
