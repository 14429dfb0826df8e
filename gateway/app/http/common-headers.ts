import type { MiddlewareHandler } from 'hono';
import type { AppEnv } from '../context.ts';
import { childTraceparent, requestIdOf } from './trace.ts';

/** Nothing of this API is meant to be framed, scripted or sniffed; the documentation pages bring one style sheet inline. */
const SECURITY_HEADERS = [
  ['x-content-type-options', 'nosniff'],
  ['x-frame-options', 'DENY'],
  ['referrer-policy', 'no-referrer'],
  ['cross-origin-resource-policy', 'same-origin'],
  ['cross-origin-opener-policy', 'same-origin'],
  [
    'content-security-policy',
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  ],
] as const;

/** Names the request and its trace, in and out, and sets the security headers. It comes first, so that refusals carry them too. */
export function commonHeaders(): MiddlewareHandler<AppEnv> {
  return async function commonHeaders(c, next) {
    const requestId = requestIdOf(c.req.header('x-request-id'));
    const traceparent = childTraceparent(c.req.header('traceparent'));
    c.set('requestId', requestId);
    c.set('traceparent', traceparent);
    await next();
    const headers = c.res.headers;
    headers.set('x-request-id', requestId);
    headers.set('traceparent', traceparent);
    for (const [name, value] of SECURITY_HEADERS) headers.set(name, value);
  };
}
