import { html } from 'hono/html';
import type { HtmlEscapedString } from 'hono/utils/html';

/** Markup in which everything that was put in is escaped. */
export type Html = HtmlEscapedString | Promise<HtmlEscapedString>;

export { html };

/** Nothing. */
export const NONE: Html = html``;

/** The text of markup, once everything in it has come. */
export async function textOf(markup: Html): Promise<string> {
  return String(await markup);
}
