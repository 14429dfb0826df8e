import type { OpenAPIHono, RouteConfig, RouteHandler } from '@hono/zod-openapi';
import type { AppEnv } from '../context.ts';
import { CODES, type ErrorCode } from '../errors/codes.ts';
import { ProblemSchema } from './schemas.ts';

export type App = OpenAPIHono<AppEnv>;

type Context<R extends RouteConfig> = Parameters<RouteHandler<R, AppEnv>>[0];

/**
 * Adds a route and its documentation. Parameters arrive typed and checked; the answer is any `Response`, since one route answers with JSON,
 * a stream or nothing, as the client wishes (tests hold the JSON answers against the documented schemas).
 */
export function define<R extends RouteConfig>(
  app: App,
  route: R,
  handler: (c: Context<R>) => Response | Promise<Response>,
): void {
  app.openapi(route, handler as unknown as RouteHandler<R, AppEnv>);
}

/** Every route with a key can fail in these ways. */
const ALWAYS: readonly ErrorCode[] = ['unauthorized', 'forbidden', 'store-unavailable', 'internal'];

/** The documented error answers of a route: its codes grouped by status. */
export function problems(...codes: ErrorCode[]): Record<string, object> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of new Set([...codes, ...ALWAYS])) {
    const status = CODES[code].status;
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...byStatus].map(([status, list]) => [
      status,
      {
        description: list.map((code) => `\`${code}\``).join(', '),
        content: { 'application/problem+json': { schema: ProblemSchema } },
      },
    ]),
  );
}

/** A documented JSON answer. */
export function json<T>(schema: T, description: string) {
  return { description, content: { 'application/json': { schema } } };
}

/** A documented stream of an invocation's events. */
export const EVENT_STREAM = {
  'text/event-stream': {
    schema: {
      type: 'string' as const,
      description: 'Frames of `id`, `event` (start, message, log, metric, result, error) and `data` (JSON)',
    },
  },
};

/** Every route under /v1 wants a key. */
export const SECURITY = [{ apiKey: [] }];
