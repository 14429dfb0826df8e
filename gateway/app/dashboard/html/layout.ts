import { type Html, html, NONE } from './html.ts';
import { tokenField } from './parts.ts';

export interface Frame {
  readonly title: string;
  /** The page's entry in the navigation. */
  readonly place?: Place;
  /** The signed-in key; absent on pages before sign-in. */
  readonly signedIn?: {
    readonly tenant: string;
    readonly keyId: string;
    readonly admin: boolean;
    readonly operator: boolean;
    readonly formToken: string;
  };
  /** Address of the event stream from which the script updates the page; absent when the page stays as it is. */
  readonly live?: string | undefined;
  readonly body: Html;
}

const PLACES = [
  { place: 'overview', href: '/dashboard', name: 'Overview' },
  { place: 'invocations', href: '/dashboard/invocations', name: 'Invocations' },
  { place: 'functions', href: '/dashboard/functions', name: 'Functions' },
  { place: 'playground', href: '/dashboard/playground', name: 'Playground' },
  { place: 'usage', href: '/dashboard/usage', name: 'Usage' },
  { place: 'administration', href: '/dashboard/administration', name: 'Administration' },
  { place: 'platform', href: '/dashboard/platform', name: 'Platform' },
] as const;
export type Place = (typeof PLACES)[number]['place'];

export function layout({ title, place, signedIn, live, body }: Frame): Html {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} – Pie</title>
<link rel="icon" href="/dashboard/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/assets/style.css">
<script src="/dashboard/assets/live.js" defer></script>
</head>
<body${live === undefined ? NONE : html` data-live="${live}"`}>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><div class="inner">
<a class="brand" href="/dashboard"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><circle cx="12" cy="12" r="10" class="crust"/><path d="M12 12V3.2A8.8 8.8 0 0 1 20.8 12z" class="slice"/></svg>Pie</a>
${signedIn === undefined ? NONE : navigation(place, signedIn)}
</div></header>
<main id="main" tabindex="-1">
${body}
</main>
<footer class="bottom"><div class="inner"><span>Times are UTC.</span><a href="/docs">API documentation</a>${
    live === undefined
      ? NONE
      : html`<span id="live-state" class="live-state" role="status"></span><noscript><span>Reload the page to see what changed.</span></noscript>`
  }</div></footer>
</body>
</html>
`;
}

function navigation(
  place: Place | undefined,
  { tenant, keyId, admin, operator, formToken }: NonNullable<Frame['signedIn']>,
) {
  const visiblePlaces = PLACES.filter((entry) => {
    if (entry.place === 'platform') return operator;
    return entry.place !== 'administration' || admin;
  });
  const links = visiblePlaces.map(
    (entry) =>
      html`<li><a href="${entry.href}"${entry.place === place ? html` aria-current="page"` : NONE}>${entry.name}</a></li>`,
  );
  return html`<nav aria-label="Pages"><ul>${links}</ul></nav>
<div class="who"><span title="Signed in with ${keyId}"><span class="unseen">Tenant </span>${tenant}</span>
<form method="post" action="/dashboard/sign-out">${tokenField(formToken)}<button class="link">Sign out</button></form></div>`;
}
