import { type Html, html, NONE, notice } from '../html/parts.ts';

export const SIGN_IN = '/dashboard/sign-in';

interface SignInPage {
  /** Path of the dashboard to open afterwards. */
  readonly next: string;
  /** Cause of the last attempt's failure. */
  readonly problem?: string | undefined;
}

/** The form that asks for an API key. */
export function signInPage({ next, problem }: SignInPage): Html {
  return html`<div class="sign-in"><div class="card"><h1>Sign in</h1><p class="muted">With an API key of this platform.</p>
<form method="post" action="${SIGN_IN}">
${problem === undefined ? NONE : notice('bad', html`<span id="problem">${problem}</span>`)}
<input type="hidden" name="next" value="${next}">
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" spellcheck="false" required maxlength="256" autofocus${problem === undefined ? NONE : html` aria-invalid="true" aria-describedby="problem"`}>
<button class="primary">Sign in</button>
</form></div>
<p class="muted hint">The first key of an installation is in <code>credentials.json</code> in its home; <code>pie keys create</code> makes more.</p></div>`;
}

/** Turns an untrusted address into a path of the dashboard; the overview for anything else. */
export function safeNext(next: string | null | undefined, origin: string): string {
  if (next === null || next === undefined || !URL.canParse(next, origin)) return '/dashboard';
  const url = new URL(next, origin);
  const isDashboardPath =
    url.origin === origin && (url.pathname === '/dashboard' || url.pathname.startsWith('/dashboard/'));
  return isDashboardPath && !url.pathname.startsWith('/dashboard/sign-')
    ? `${url.pathname}${url.search}`
    : '/dashboard';
}
