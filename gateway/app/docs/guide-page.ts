import { GUIDES } from './generated/guides.ts';
import { escapeHtml, page } from './html.ts';

/** A document of `docs/`. */
export interface Guide {
  readonly title: string;
  readonly html: string;
}

/** The page of a guide, or null when there is none of this name. */
export function guidePage(name: string): string | null {
  const guide = Object.hasOwn(GUIDES, name) ? GUIDES[name] : undefined;
  return guide === undefined ? null : page(`${guide.title} – Pie`, guide.html);
}

export function guideIndex(): string {
  const rows = Object.entries(GUIDES).map(
    ([name, { title }]) => `<li><a href="/docs/guides/${name}">${escapeHtml(title)}</a></li>`,
  );
  return page('Guides – Pie', `<h1>Guides</h1>\n<ul>${rows.join('\n')}</ul>`);
}
