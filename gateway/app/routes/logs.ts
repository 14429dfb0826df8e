import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { MAX_LOG_LINES } from '../bounds.ts';
import { type AppEnv, type AppSettings, callOf } from '../context.ts';
import type { ControlPlane, LogEntry, LogOptions } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { eventStreamResponse, feedOf } from '../http/event-stream.ts';
import { timeMs, wantsEventStream } from '../http/request-options.ts';
import { LogEntrySchema, type LogQuery, LogQuerySchema, logCursor } from '../schemas/invocations.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';
import { nameParam, unknownFunction } from './functions.ts';

const logHeaders = z.object({
  'last-event-id': logCursor.optional().openapi({ description: 'Resume a stream after this line' }),
});

const responses = {
  200: {
    description: 'The lines',
    content: {
      ...json(z.object({ logs: z.array(LogEntrySchema) }), '').content,
      'text/event-stream': { schema: { type: 'string' as const } },
    },
  },
};

const DESCRIPTION =
  'The newest kept lines that pass the filters, oldest first, at most 4 Mi characters in all. A failure of an invocation is a line of level `error`. An event stream continues with live lines until the client leaves. Each line is a frame with the event `log`; a client that sends the id of a frame as `Last-Event-ID` gets the lines after it. A frame with the event `error` says why the stream ends early: the key was removed or has expired (`unauthorized`), its tenant is suspended (`tenant-suspended`), or a part of the platform went away for a while (`resumable` is true).';

/** Log lines of all invocations of a function, and of all functions. */
export function logRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  const answer = async (
    c: Context<AppEnv>,
    name: string | null,
    query: LogQuery,
    lastEventId: string | undefined,
  ): Promise<Response> => {
    const call = callOf(c);
    const isStream = wantsEventStream(c.req.header('accept'));
    const options = optionsOf(query, lastEventId, isStream);
    if (name !== null && (await control.function(call, { name })) === null) throw unknownFunction(name);
    if (!isStream) {
      const logs: LogEntry[] = [];
      for await (const entry of control.logs(call, name, options)) logs.push(entry);
      return jsonAnswer(c, { logs });
    }
    const following = new AbortController();
    const { tenant } = call.principal;
    // Counts the memory of the lines that wait for the stream. `call.memory` cannot: it counts nothing after this handler has ended. Nor can the
    // stream's `room`: the stream frees all of it after each large frame.
    const lineMemory = settings.bodies.roomFor(tenant);
    return eventStreamResponse<LogEntry>({
      method: c.req.method,
      source: feedOf(control.logs({ ...call, signal: following.signal, memory: lineMemory }, name, options)),
      frame: (entry) => `id: ${entry.cursor}\nevent: log\ndata: ${JSON.stringify(entry)}\n\n`,
      isTerminal: () => false,
      heartbeatMs: settings.heartbeatMs,
      recheck: c.get('recheck'),
      keepOpen: c.get('keepOpen'),
      room: settings.bodies.roomFor(tenant),
      client: call.signal,
      // Following never ends on its own: end it when the process begins to drain.
      shutdown: settings.draining,
      onDisconnect: () => following.abort(),
      onEnd: () => following.abort(),
    });
  };

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/logs',
      operationId: 'readLogs',
      tags: ['Functions'],
      summary: 'Logs of a function',
      description: DESCRIPTION,
      security: SECURITY,
      request: {
        params: nameParam,
        query: LogQuerySchema,
        headers: logHeaders,
      },
      responses: { ...responses, ...problems('unknown-function', 'invalid-input') },
    }),
    (c) => answer(c, c.req.valid('param').name, c.req.valid('query'), c.req.valid('header')['last-event-id']),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/logs',
      operationId: 'readAllLogs',
      tags: ['Functions'],
      summary: 'Logs of all functions',
      description: `${DESCRIPTION} Lines of several functions come in order of their time.`,
      security: SECURITY,
      request: { query: LogQuerySchema, headers: logHeaders },
      responses: { ...responses, ...problems('invalid-input') },
    }),
    (c) => answer(c, null, c.req.valid('query'), c.req.valid('header')['last-event-id']),
  );
}

function optionsOf(
  { since, until, after, limit, ...filters }: LogQuery,
  lastEventId: string | undefined,
  follow: boolean,
): LogOptions {
  if (follow && until !== undefined)
    throw new GatewayError('invalid-input', 'A stream of live lines has no end.', {
      field: 'until',
      hint: 'Leave `until` out, or read past lines with `Accept: application/json`.',
    });
  return {
    ...filters,
    // A browser resumes a stream at the address of its first request: the `limit` in that address must not make the browser miss lines.
    limit: follow && lastEventId !== undefined ? MAX_LOG_LINES : limit,
    cursor: lastEventId ?? after ?? null,
    follow,
    sinceMs: timeOf('since', since),
    untilMs: timeOf('until', until),
  };
}

function timeOf(field: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const ms = timeMs(text, Date.now());
  if (ms !== null && ms >= 0) return ms;
  throw new GatewayError('invalid-input', `"${text}" is not a time.`, {
    field,
    hint: 'Write ISO 8601 (2026-11-20T05:12:00Z), or a time before now: `30s`, `10m`, `2h`, `1d`.',
  });
}
