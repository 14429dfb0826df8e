import { DOCS_STYLE } from '../generated/browser.ts';

/** A page that loads no script, font or style sheet. */
export function page(title: string, body: string): string {
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
export function prose(text: string): string {
  return escapeHtml(text).replaceAll(/`([^`]+)`/g, '<code>$1</code>');
}
