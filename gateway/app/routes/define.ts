import type { OpenAPIHono, RouteConfig, RouteHandler } from '@hono/zod-openapi';
import type { AppEnv } from '../context.ts';
import { EVENT_NAMES } from '../control.ts';
import { CODES, type ErrorCode } from '../errors/codes.ts';
import { ProblemSchema } from '../schemas/platform.ts';

export type App = OpenAPIHono<AppEnv>;

type Context<R extends RouteConfig> = Parameters<RouteHandler<R, AppEnv>>[0];

/**
 * Adds a route and its documentation. Parameters arrive typed and checked. A handler may return any `Response`, since one route answers
 * with JSON, a stream or nothing, as the client asked (tests check the JSON answers against the documented schemas).
 */
export function define<R extends RouteConfig>(
  app: App,
  route: R,
  handler: (c: Context<R>) => Response | Promise<Response>,
): void {
  app.openapi(route, handler as unknown as RouteHandler<R, AppEnv>);
}

/** Errors of every route that needs a key. */
const COMMON_CODES: readonly ErrorCode[] = [
  'unauthorized',
  'forbidden',
  'tenant-suspended',
  'address-too-long',
  'headers-too-large',
  'body-timeout',
  'too-many-requests',
  'gateway-busy',
  'store-unavailable',
  'internal',
];

const header = (description: string, example: string) => ({
  description,
  schema: { type: 'string' as const, example },
});

/** Tell the client whether and when the same request may succeed. */
const RETRY_HEADERS = {
  'X-Should-Retry': header('`true` when a client may repeat the request by itself', 'true'),
  'Retry-After': header('Seconds after which another try may succeed, where that is known', '1'),
  'Retry-After-Ms': header('The same in milliseconds', '1000'),
};

/** The remainder of counted quotas, where the tenant has some (draft-ietf-httpapi-ratelimit-headers-10). */
const LIMIT_HEADERS = {
  'RateLimit-Policy': header('The quotas that count: `q` in `w` seconds', '"requests-per-minute";q=60;w=60'),
  RateLimit: header('The rest of each quota: `r` for `t` seconds', '"requests-per-minute";r=12;t=31'),
};

/** Headers of an answer to an invocation request. */
export const INVOKED_HEADERS = {
  ...LIMIT_HEADERS,
  'Content-Location': header('Address of the invocation', '/v1/invocations/inv_4f1c'),
  'Preference-Applied': header('The honoured preferences of `Prefer`', 'wait=10'),
  'Idempotency-Replayed': header('`true` when an earlier request with the key made the invocation', 'true'),
};

/** Header of an answer that creates an invocation. */
export const LOCATION = { Location: header('Address of the invocation', '/v1/invocations/inv_4f1c') };

/** Error codes of any route with a JSON body. */
export const BODY_CODES = ['invalid-input', 'malformed-json', 'body-too-large', 'unsupported-media-type'] as const;

/** The documented error answers of a route: its codes, grouped by status. */
export function problems(...codes: ErrorCode[]): Record<string, object> {
  return refusals(codes, { 'application/problem+json': { schema: ProblemSchema } });
}

/** {@link problems} of a route whose errors have another form. */
export function refusals(codes: readonly ErrorCode[], content: object): Record<string, object> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of new Set([...codes, ...COMMON_CODES])) {
    const status = CODES[code].status;
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, list]) => [
      status,
      {
        description: list.map((code) => `\`${code}\``).join(', '),
        ...(status === 409 || status === 429 || status >= 500
          ? { headers: { ...RETRY_HEADERS, ...(status === 429 ? LIMIT_HEADERS : {}) } }
          : {}),
        content,
      },
    ]),
  );
}

export function json<T>(schema: T, description: string) {
  return { description, content: { 'application/json': { schema } } };
}

/** A documented stream of an invocation's events. */
export const EVENT_STREAM = {
  'text/event-stream': {
    schema: {
      type: 'string' as const,
      description: `Frames of \`id\`, \`event\` (${EVENT_NAMES.join(', ')}) and \`data\` (JSON). An \`error\` without an id comes from the gateway and not from the invocation; \`resumable\` tells whether the client may resume the stream. After \`unauthorized\` or \`tenant-suspended\`, the key may no longer read the stream; the invocation itself continues.`,
    },
  },
};

/** Every route under /v1 needs a key, in one of two headers. */
export const SECURITY: Record<string, string[]>[] = [{ apiKey: [] }, { xApiKey: [] }];
