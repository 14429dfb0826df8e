import { CODES } from '../../errors/codes.ts';
import type { GatewayError } from '../../errors/gateway-error.ts';
import { type Html, html, prose } from '../html/parts.ts';
import { SIGN_IN } from './sign-in.ts';

const LABELS: ReadonlyMap<string, string> = new Map([
  ['/dashboard', 'Overview'],
  [SIGN_IN, 'Sign in'],
]);

/** An error as a page: cause, remedy, and a link back. */
export function problemPage(error: GatewayError, requestId: string, back: string): Html {
  return html`<div class="sign-in"><div class="card"><p class="muted">${error.status}</p><h1>${CODES[error.code].title}</h1>
<p>${prose(error.message)}</p><p>${prose(error.hint)}</p>
<div class="actions"><a class="button" href="${back}">${LABELS.get(back) ?? 'Back'}</a></div></div>
<p class="muted hint"><a href="/docs/errors/${error.code}"><code>${error.code}</code></a>, request <code>${requestId}</code></p></div>`;
}
