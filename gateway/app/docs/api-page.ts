import { escapeHtml, page, prose } from './html.ts';

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
