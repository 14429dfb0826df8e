import type { CallReference, ContractReference, InterfaceReference, TypeReference } from '#wit/generate/reference.ts';
import { CODES, type ErrorCode } from '../errors/codes.ts';
import { DOCS_STYLE } from '../generated/browser.ts';

/** A page that loads no script, font or style sheet. */
function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${DOCS_STYLE}</style>
</head>
<body>
<nav><a href="/docs">Pie API</a> <a href="/docs/guides">Guides</a> <a href="/docs/errors">Errors</a> <a href="/docs/inferlet">Inferlets</a> <a href="/openapi.json">OpenAPI</a> <a href="/dashboard">Dashboard</a></nav>
<main>
${body}
</main>
</body>
</html>
`;
}

export function escapeHtml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');
}

/** Escaped text in which backticks become code. */
function prose(text: string): string {
  return escapeHtml(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
  readonly schema?: { readonly description?: string };
}

interface Operation {
  readonly summary?: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, unknown>> };
  readonly responses?: Readonly<Record<string, { readonly description?: string }>>;
}

/** The members of an OpenAPI document that this page reads. */
export interface ApiDocument {
  readonly info: { readonly title: string; readonly version: string; readonly description?: string };
  readonly paths?: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

/** The API's documentation, rendered from its OpenAPI document. `origin` is the address in the reader's request. */
export function apiPage(document: ApiDocument, origin: string): string {
  const groups = new Map<string, string[]>();
  for (const [path, operations] of Object.entries(document.paths ?? {})) {
    for (const [method, operation] of Object.entries(operations)) {
      const group = operation.tags?.[0] ?? 'Other';
      groups.set(group, [...(groups.get(group) ?? []), section(method, path, operation)]);
    }
  }
  const sections = [...groups].map(([name, list]) => `<h2>${escapeHtml(name)}</h2>\n${list.join('\n')}`);
  return page(
    document.info.title,
    `<h1>${escapeHtml(document.info.title)} <span class="muted">${escapeHtml(document.info.version)}</span></h1>
<p>${prose(document.info.description ?? '')}</p>
<pre><code>${escapeHtml(example(origin))}</code></pre>
${sections.join('\n')}`,
  );
}

function example(origin: string): string {
  return `curl -N ${origin}/v1/functions/text-completion/invocations \\
  -H "Authorization: Bearer $PIE_API_KEY" -H "Accept: text/event-stream" \\
  -H "Content-Type: application/json" -d '{"prompt": "Once upon a time", "maxTokens": 64}'`;
}

function section(method: string, path: string, operation: Operation): string {
  const parameters = (operation.parameters ?? []).map(
    (parameter) =>
      `<tr><td><code>${escapeHtml(parameter.name)}</code></td><td>${escapeHtml(parameter.in)}${parameter.required === true ? ', required' : ''}</td><td>${prose(parameter.description ?? parameter.schema?.description ?? '')}</td></tr>`,
  );
  const responses = Object.entries(operation.responses ?? {}).map(
    ([status, response]) =>
      `<tr><td>${escapeHtml(status)}</td><td>${linkCodes(prose(response.description ?? ''))}</td></tr>`,
  );
  const bodies = Object.keys(operation.requestBody?.content ?? {});
  return `<details><summary><span class="method">${method.toUpperCase()}</span> <span class="path">${escapeHtml(path)}</span> <span class="muted">${escapeHtml(operation.summary ?? '')}</span></summary>
<p>${prose(operation.description ?? '')}</p>
${parameters.length === 0 ? '' : `<table><tbody>${parameters.join('')}</tbody></table>`}
${bodies.length === 0 ? '' : `<p>Body: ${bodies.map((type) => `<code>${escapeHtml(type)}</code>`).join(', ')}</p>`}
<table><thead><tr><th>Status</th><th>Answer</th></tr></thead><tbody>${responses.join('')}</tbody></table></details>`;
}

/** Links the codes in the description of an error answer to their pages. */
function linkCodes(html: string): string {
  return /^(<code>[a-z-]+<\/code>(, )?)+$/.test(html)
    ? html.replaceAll(/<code>([a-z-]+)<\/code>/g, '<a href="/docs/errors/$1"><code>$1</code></a>')
    : html;
}

export function errorPage(code: ErrorCode): string {
  const entry = CODES[code];
  return page(
    `${code} – Pie API`,
    `<h1><code>${escapeHtml(code)}</code></h1>
<p><strong>${escapeHtml(entry.title)}</strong> <span class="muted">HTTP ${entry.status}</span></p>
<h2>What happened</h2><p>${prose(entry.explanation)}</p>
<h2>What to do</h2><p>${prose(entry.hint)}</p>`,
  );
}

export function errorIndex(): string {
  const rows = Object.entries(CODES).map(
    ([code, entry]) =>
      `<tr><td><a href="/docs/errors/${code}"><code>${code}</code></a></td><td>${entry.status}</td><td>${escapeHtml(entry.title)}</td></tr>`,
  );
  return page(
    'Errors – Pie API',
    `<h1>Errors</h1>
<p>Every error is an RFC 9457 problem (<code>application/problem+json</code>) with a <code>code</code> of this list, a <code>hint</code>, the <code>requestId</code>, and an
<code>error</code> object that OpenAI-style clients read. The <code>error</code> event of a stream has <code>code</code>, <code>message</code>, <code>hint</code> and
<code>error</code>; the request is named by the header <code>X-Request-Id</code> of the stream.</p>
<table><thead><tr><th>Code</th><th>HTTP</th><th>Meaning</th></tr></thead><tbody>${rows.join('\n')}</tbody></table>`,
  );
}

/** The documents of `docs/` and their images. A gateway in workerd has no files to read, so it asks its origin for them. */
export interface Guides {
  /** The whole page of a guide, or null when there is none of this name. */
  page(name: string): Promise<string | null>;
  /** The whole page that lists the guides. */
  index(): Promise<string>;
  /** The content of the image with this file name, or null when there is none. */
  image(name: string): Promise<Uint8Array<ArrayBuffer> | null>;
}

/** The page of a guide. */
export function guidePage(title: string, html: string): string {
  return page(`${title} – Pie`, html);
}

/** The page that lists the guides in this order. */
export function guideIndex(guides: readonly { readonly name: string; readonly title: string }[]): string {
  const rows = guides.map(({ name, title }) => `<li><a href="/docs/guides/${name}">${escapeHtml(title)}</a></li>`);
  return page('Guides – Pie', `<h1>Guides</h1>\n<ul>${rows.join('\n')}</ul>`);
}

/** Names of guides: those of files in `docs/` of the repository, without `.md`. */
export const GUIDE_NAME = /^[a-z][a-z-]{0,60}$/;

/** Names of the guides' images, files in `docs/` of the repository. */
export const GUIDE_IMAGE = /^(?:[a-z][a-z-]{0,60}\.png|benchmarks\/[a-z][a-z-]{0,60}\.svg)$/;

/** The contract of inferlets: every interface, type and call. */
export function inferletPage(reference: ContractReference): string {
  const rows = reference.interfaces.map(
    (entry) =>
      `<tr><td><a href="#${entry.name}"><code>${entry.name}</code></a></td><td>${prose(entry.needs)}</td></tr>`,
  );
  return page(
    'Inferlets – Pie API',
    `<h1>${escapeHtml(reference.package)} <span class="muted">${escapeHtml(reference.version)}</span></h1>
<p>${prose(reference.docs)} TypeScript inferlets have <code>@pie/inferlet</code> over it, and <code>@pie/inferlet/raw</code>; inferlets in C include <code>pie.h</code>, and those in Rust use the crate <code>pie</code>.</p>
<p>${prose(reference.introduction)}</p>
<table><thead><tr><th>Interface</th><th>Needs</th></tr></thead><tbody>${rows.join('\n')}</tbody></table>
<h2>What an inferlet exports</h2>
${reference.exports.map(callHtml).join('\n')}
${reference.interfaces.map(interfaceHtml).join('\n')}`,
  );
}

const interfaceHtml = ({ name, docs, needs, types, calls }: InterfaceReference): string =>
  `<h2 id="${name}">${name}</h2>
<p>${prose(docs)}</p>
<p class="muted">${prose(needs)}</p>
${types.map(typeHtml).join('\n')}
${calls.map(callHtml).join('\n')}`;

function typeHtml({ kind, name, docs, members }: TypeReference): string {
  const rows = members.map(
    (member) =>
      `<tr><td><code>${escapeHtml(member.name)}</code></td><td>${member.type ? `<code>${escapeHtml(member.type)}</code>` : ''}</td><td>${prose(member.docs)}</td></tr>`,
  );
  return `<details><summary><span class="method">${kind}</span> <span class="path">${escapeHtml(name)}</span></summary>
${docs ? `<p>${prose(docs)}</p>` : ''}${rows.length > 0 ? `<table><tbody>${rows.join('')}</tbody></table>` : ''}</details>`;
}

const callHtml = ({ name, signature, docs, cost, errors, errorsTitle, c }: CallReference): string =>
  `<details><summary><span class="path">${escapeHtml(name)}</span></summary>
<pre><code>${escapeHtml(signature)}</code></pre>
${docs ? `<p>${prose(docs)}</p>` : ''}<p class="muted">${escapeHtml(cost)}${errors.length > 0 ? ` ${errorsTitle}: ${errors.map((error) => `<code>${escapeHtml(error)}</code>`).join(', ')}.` : ''} C: <code>${c}</code>.</p></details>`;
