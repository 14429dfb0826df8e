import { CODES, type ErrorCode } from '../errors/codes.ts';
import { escapeHtml, page, prose } from './html.ts';

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
