import type { MiddlewareHandler } from 'hono';
import { cors } from 'hono/cors';
import { matchedRoutes } from 'hono/route';
import type { AppEnv } from '../context.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { isMessagesPath } from '../openai/anthropic.ts';
import { childTraceparent, type RequestObserver, requestIdOf } from './observer.ts';

/** Keeps browsers from framing the API's answers and from guessing their types. */
const SECURITY_HEADERS = [
  ['x-content-type-options', 'nosniff'],
  ['x-frame-options', 'DENY'],
  ['cross-origin-resource-policy', 'same-origin'],
  ['cross-origin-opener-policy', 'same-origin'],
] as const;

/** Allows no scripts. It allows inline style sheets, which the documentation pages have. The dashboard's pages set their own policy. */
export const DEFAULT_POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const DEFAULT_HEADERS = [
  ['referrer-policy', 'no-referrer'],
  ['content-security-policy', DEFAULT_POLICY],
] as const;

/** Sets the request id, the trace context and the security headers. Runs as the first middleware, so that refusals carry these headers, too. */
export function commonHeaders(observer?: RequestObserver): MiddlewareHandler<AppEnv> {
  return async function commonHeaders(c, next) {
    const requestId = requestIdOf(c.req.header('x-request-id'));
    const { method, path } = c.req;
    const clientTraceparent = c.req.header('traceparent');
    const observation = observer?.begin({ method, path, traceparent: clientTraceparent, environment: c.env });
    const traceparent = observation?.traceparent ?? childTraceparent(clientTraceparent);
    c.set('requestId', requestId);
    c.set('traceparent', traceparent);
    await next();
    observation?.answered({
      route: matchedRoutes(c).at(-1)?.path ?? '/*',
      status: c.res.status,
      tenant: c.get('principal')?.tenant,
      code: codeOf(c.error, c.res.status),
    });
    const headers = c.res.headers;
    headers.set('x-request-id', requestId);
    // Anthropic's clients read the id from this header.
    if (isMessagesPath(path)) headers.set('request-id', requestId);
    headers.set('traceparent', traceparent);
    for (const [name, value] of SECURITY_HEADERS) headers.set(name, value);
    for (const [name, value] of DEFAULT_HEADERS) if (!headers.has(name)) headers.set(name, value);
  };
}

/** Headers of answers that a page of another origin may read, besides those that browsers always show. */
const EXPOSED_HEADERS = [
  'accept-encoding',
  'accept-post',
  'allow',
  'content-disposition',
  'content-location',
  'idempotency-replayed',
  'location',
  'ratelimit',
  'ratelimit-policy',
  'request-id',
  'retry-after',
  'retry-after-ms',
  'traceparent',
  'www-authenticate',
  'x-pie-dropped-constraints',
  'x-request-id',
  'x-should-retry',
];
/** Time for which a browser keeps the answer to a preflight: the longest that Chrome allows. */
const PREFLIGHT_AGE_S = 7200;

/**
 * Lets pages of the origins call the API (CORS), and answers their preflights, which carry no key. A page sends its key itself; the API takes no
 * cookies, so no answer allows credentials.
 *
 * @param origins as browsers send them, such as `https://app.example.com`; `*` for all
 * @example
 * app.use('/v1/*', crossOrigin(['https://app.example.com']));
 */
export function crossOrigin(origins: readonly string[]): MiddlewareHandler<AppEnv> {
  const answer = cors({
    origin: origins.includes('*') ? '*' : [...origins],
    allowMethods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposeHeaders: EXPOSED_HEADERS,
    maxAge: PREFLIGHT_AGE_S,
  });
  return async function crossOrigin(c, next) {
    // `cors` would take every OPTIONS request for a preflight.
    const isPreflight = c.req.header('access-control-request-method') !== undefined;
    return c.req.method === 'OPTIONS' && !isPreflight ? next() : answer(c, next);
  };
}

/**
 * The headers of {@link crossOrigin} for a refusal that the app does not make.
 *
 * @param origin header `Origin` of the request; undefined if it could not be read: then the answer allows the only origin, if there is one
 */
export function crossOriginHeaders(
  origins: readonly string[],
  origin: string | undefined,
): Readonly<Record<string, string>> {
  const known = origin ?? (origins.length === 1 ? origins[0] : undefined);
  const allowed = origins.includes('*') ? '*' : origins.find((each) => each === known);
  if (allowed === undefined) return {};
  return {
    'access-control-allow-origin': allowed,
    'access-control-expose-headers': EXPOSED_HEADERS.join(','),
    ...(allowed !== '*' && { vary: 'Origin' }),
  };
}

/** The error code of an answer; undefined for a success. */
function codeOf(error: Error | undefined, status: number): string | undefined {
  if (error) return GatewayError.from(error).code;
  if (status < 400) return undefined;
  if (status === 404) return 'not-found';
  return status === 405 ? 'method-not-allowed' : 'other';
}
