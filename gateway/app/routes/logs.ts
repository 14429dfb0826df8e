import { createRoute, z } from '@hono/zod-openapi';
import { type AppSettings, callOf } from '../context.ts';
import type { ControlPlane, LogEntry } from '../control.ts';
import { eventStreamResponse } from '../http/event-stream.ts';
import { wantsEventStream } from '../http/preferences.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';
import { unknownFunction } from './functions.ts';
import { LogEntrySchema } from './schemas.ts';

const MAX_LIMIT = 10_000;
/** Cursors are the ids of a stream: time and sequence. */
const CURSOR = /^\d{1,20}-\d{1,20}$/;

/** Log lines of a function, over all its invocations. */
export function logRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/logs',
      operationId: 'readLogs',
      tags: ['Functions'],
      summary: 'Logs of a function',
      description:
        'The newest kept lines, oldest first; failures of invocations are lines of level `error`. As an event stream it goes on with live lines until the client leaves; each frame has the event `log`, and its id resumes with `Last-Event-ID`.',
      security: SECURITY,
      request: {
        params: z.object({ name: z.string().min(1).max(64) }),
        query: z.object({
          limit: z.coerce
            .number()
            .int()
            .min(0)
            .max(MAX_LIMIT)
            .default(200)
            .openapi({ description: 'Past lines at most' }),
          level: z
            .enum(['debug', 'info', 'warn', 'error'])
            .default('debug')
            .openapi({ description: 'This level and worse' }),
          invocation: z.string().max(128).optional().openapi({ description: "Only this invocation's" }),
          after: z
            .string()
            .regex(CURSOR, 'is not a cursor')
            .optional()
            .openapi({ description: 'Cursor: only later lines' }),
        }),
        headers: z.object({ 'last-event-id': z.string().regex(CURSOR, 'is not a cursor').optional() }),
      },
      responses: {
        200: {
          description: 'The lines',
          content: {
            ...json(z.object({ logs: z.array(LogEntrySchema) }), '').content,
            'text/event-stream': { schema: { type: 'string' as const } },
          },
        },
        ...problems('unknown-function', 'invalid-input'),
      },
    }),
    async (c) => {
      const call = callOf(c);
      const { name } = c.req.valid('param');
      const { limit, level, invocation, after } = c.req.valid('query');
      const cursor = c.req.valid('header')['last-event-id'] ?? after ?? null;
      if ((await control.function(call, { name })) === null) throw unknownFunction(name);
      const options = { cursor, limit, level, invocation };
      if (!wantsEventStream(c.req.header('accept'))) {
        const logs: LogEntry[] = [];
        for await (const entry of control.logs(call, name, { ...options, follow: false })) logs.push(entry);
        return c.json({ logs });
      }
      const following = new AbortController();
      return eventStreamResponse({
        source: control.logs({ ...call, signal: following.signal }, name, { ...options, follow: true }),
        frame: ({ cursor: id, ...entry }) =>
          `id: ${id}\nevent: log\ndata: ${JSON.stringify({ cursor: id, ...entry })}\n\n`,
        isTerminal: () => false,
        heartbeatMs: settings.heartbeatMs,
        client: call.signal,
        // It would go on for ever.
        shutdown: settings.draining,
        onDisconnect: () => following.abort(),
        onEnd: () => following.abort(),
      });
    },
  );
}
