import { readdir, readFile } from 'node:fs/promises';
import { Marked } from 'marked';
import { escapeHtml, type Guides, guideIndex, guidePage } from '../../app/docs/pages.ts';

/** The folder of the guides and their images. */
const DOCS = new URL('../../../docs/', import.meta.url);

/** The guides of this release: the Markdown files of `docs/`. Each becomes HTML once, when a client first requests it. */
export class GuideFiles implements Guides {
  readonly #pages = new Map<string, string>();
  #index: string | undefined;

  async page(name: string): Promise<string | null> {
    const known = this.#pages.get(name);
    if (known !== undefined) return known;
    const source = await fileOf(`${name}.md`);
    if (source === null) return null;
    const text = source.toString();
    const page = guidePage(titleOf(name, text), htmlOf(name, text));
    this.#pages.set(name, page);
    return page;
  }

  async index(): Promise<string> {
    this.#index ??= guideIndex(
      await Promise.all(
        (await readdir(DOCS))
          .filter((file) => file.endsWith('.md'))
          .sort()
          .map(async (file) => {
            const name = file.slice(0, -'.md'.length);
            return { name, title: titleOf(name, await readFile(new URL(file, DOCS), 'utf8')) };
          }),
      ),
    );
    return this.#index;
  }

  image(name: string): Promise<Uint8Array<ArrayBuffer> | null> {
    return fileOf(name);
  }
}

/** The content of a file of `docs/`; null when there is none of this name. */
async function fileOf(name: string): Promise<Buffer<ArrayBuffer> | null> {
  try {
    return await readFile(new URL(name, DOCS));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

const titleOf = (name: string, source: string): string => /^# (.+)$/m.exec(source)?.[1] ?? name;

/** A guide as HTML: headings get the anchors that GitHub gives them, and links and images the addresses of the gateway. */
function htmlOf(name: string, source: string): string {
  const marked = new Marked({
    renderer: {
      heading({ depth, tokens }) {
        const anchor = anchorOf(this.parser.parseInline(tokens, this.parser.textRenderer));
        return `<h${depth} id="${anchor}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      // Only guides have a page: a link to any other file of the repository becomes its text.
      link({ href, tokens }) {
        const text = this.parser.parseInline(tokens);
        const guide = /^(?:([\w-]+)\.md)?(#.*)?$/.exec(href);
        if (guide) return `<a href="/docs/guides/${guide[1] ?? name}${escapeHtml(guide[2] ?? '')}">${text}</a>`;
        return /^https?:/.test(href) ? `<a href="${escapeHtml(href)}">${text}</a>` : text;
      },
      image: ({ href, text }) =>
        `<img src="/docs/images/${escapeHtml(href)}" alt="${escapeHtml(text)}" loading="lazy">`,
    },
  });
  return marked.parse(source, { async: false });
}

/** The anchor that GitHub gives a heading. */
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');
