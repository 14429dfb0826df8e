import type { MiddlewareHandler } from 'hono';
import type { QuotaUse } from '#scheduler/quotas/exceeded.ts';
import { type Counted, countedPart, windowLength } from '#scheduler/quotas/names.ts';
import type { AppEnv } from '../context.ts';

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
