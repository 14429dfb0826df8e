import { html } from 'hono/html';
import type { HtmlEscapedString } from 'hono/utils/html';

/** Markup in which every inserted value is escaped. */
export type Html = HtmlEscapedString | Promise<HtmlEscapedString>;

export { html };

export const NONE: Html = html``;

/** The text of markup, once all its promises have resolved. */
export async function textOf(markup: Html): Promise<string> {
  return String(await markup);
}
