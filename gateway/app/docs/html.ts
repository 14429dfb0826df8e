/** A page that loads no script, font or style sheet. */
export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${STYLE}</style>
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

const STYLE = `
:root { color-scheme: light dark; --line: light-dark(#d8d4cc, #3a3833); --soft: light-dark(#f6f4ef, #24221e); --accent: light-dark(#8a4b12, #e0a060); }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 1.5rem; }
nav { display: flex; gap: 1.2rem; border-bottom: 1px solid var(--line); padding-bottom: .6rem; }
a { color: var(--accent); }
code, pre { font: .88em/1.5 ui-monospace, monospace; background: var(--soft); border-radius: 4px; }
code { padding: .1em .3em; } pre { padding: .8rem; overflow-x: auto; } pre code { padding: 0; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; } th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .9rem; margin: .5rem 0; } summary { cursor: pointer; }
.method { font-weight: 700; display: inline-block; min-width: 4.2rem; color: var(--accent); }
img { max-width: 100%; border: 1px solid var(--line); border-radius: 6px; }
.path { font-family: ui-monospace, monospace; } .muted { opacity: .75; }
`;
