import type { MiddlewareHandler } from 'hono';
import type { QuotaUse } from '#scheduler/quotas/exceeded.ts';
import { type Counted, countedPart, windowLength } from '#scheduler/quotas/names.ts';
import type { AppEnv, AppSettings } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';

/** Maximum characters of a key in a request; the platform's own keys have 36. */
export const MAX_KEY_LENGTH = 256;

/**
 * Requires an API key, as a bearer key (RFC 6750) or in the header `x-api-key` of Anthropic's clients, and room for a request of its tenant. Sets the
 * request's `principal` and `recheck`.
 *
 * @example
 * app.use('/v1/*', authenticate(control, settings));
 */
export function authenticate(control: ControlPlane, { admit }: Pick<AppSettings, 'admit'>): MiddlewareHandler<AppEnv> {
  return async function authenticate(c, next) {
    const key = keyIn(c.req.header('authorization'), c.req.header('x-api-key'));
    const principal = await control.authenticate(key);
    if (principal === null) throw refused('The API key is not known.');
    c.set('principal', principal);
    admit(c, principal);
    c.set('recheck', async () => {
      if ((await control.authenticate(key)) === null)
        throw refused('The API key was removed.', 'Use another key; `pie keys create` makes one.');
    });
    await next();
  };
}

/** The key of a request. `authorization` takes precedence: with both headers, the other key may be for another service. */
function keyIn(authorization: string | undefined, apiKey: string | undefined): string {
  const header = authorization ?? apiKey;
  if (header === undefined) throw refused('The request has no API key.');
  const key = (authorization === undefined ? /^([^\s]+)$/ : /^Bearer +([^\s]+)$/i).exec(header)?.[1];
  if (key !== undefined && key.length <= MAX_KEY_LENGTH) return key;
  const fault =
    authorization === undefined ? 'x-api-key header is not a key' : 'Authorization header is not `Bearer` and a key';
  throw refused(`The ${fault}.`);
}

function refused(message: string, hint?: string): GatewayError {
  return new GatewayError('unauthorized', message, { hint, headers: { 'www-authenticate': 'Bearer realm="pie"' } });
}

/** The parameter `qu`: the unit that a quota counts. Empty for requests, the draft's default unit. */
const unitOf = (counted: Counted): string => (counted === 'requests' ? '' : `;qu="${counted}"`);

/**
 * The headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10) of the counted quotas: those per minute, day or month.
 * `q` is the limit in a window of `w` seconds. The present window ends in `t` seconds, and `r` is what remains of the limit until then. A function's
 * quota is named `<quota>/<function>`.
 *
 * @example
 * rateLimitHeaders([{ quota: 'requests-per-minute', function: null, limit: 60, used: 48, resetsAt: now + 31_000 }], now);
 * // { 'ratelimit-policy': '"requests-per-minute";q=60;w=60', ratelimit: '"requests-per-minute";r=12;t=31' }
 */
export function rateLimitHeaders(quotas: readonly QuotaUse[], now: number): Record<string, string> {
  const policies: string[] = [];
  const limits: string[] = [];
  for (const { quota, function: fn, limit, used, resetsAt } of quotas) {
    const part = countedPart(quota);
    if (part === null || resetsAt === null) continue;
    const name = fn === null ? `"${quota}"` : `"${quota}/${fn}"`;
    const windowS = Math.round(windowLength(part.window, now) / 1000);
    policies.push(`${name};q=${limit}${unitOf(part.counted)};w=${windowS}`);
    limits.push(
      `${name};r=${Math.max(0, Math.floor(limit - used))};t=${Math.max(0, Math.ceil((resetsAt - now) / 1000))}`,
    );
  }
  return limits.length === 0 ? {} : { 'ratelimit-policy': policies.join(', '), ratelimit: limits.join(', ') };
}

/** Longest wait for which a client library is told to retry by itself. For a longer wait, the program that uses the library decides. */
const MAX_PATIENCE_MS = 60_000;

/**
 * Headers that tell a client when to retry: in whole seconds, rounded up so that no retry comes too early, and in milliseconds.
 *
 * @param retryAfterMs null when waiting does not help
 */
export function retryHeaders(retryAfterMs: number | null): Record<string, string> {
  if (retryAfterMs === null) return { 'x-should-retry': 'false' };
  return {
    'retry-after': String(Math.ceil(retryAfterMs / 1000)),
    'retry-after-ms': String(Math.ceil(retryAfterMs)),
    'x-should-retry': String(retryAfterMs <= MAX_PATIENCE_MS),
  };
}

/**
 * Adds the headers that the control plane gave (`Call.answerHeaders`) to the answer, also when it is an error.
 *
 * @example
 * app.use('/v1/*', rateLimit());
 */
export function rateLimit(): MiddlewareHandler<AppEnv> {
  return async function rateLimit(c, next) {
    await next();
    for (const [name, value] of Object.entries(c.get('answerHeaders') ?? {})) c.res.headers.set(name, value);
  };
}
