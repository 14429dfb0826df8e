import { createRoute, z } from '@hono/zod-openapi';
import { hasEnded as isFinal } from '#scheduler/invocations/types.ts';
import { type AppSettings, callOf } from '../context.ts';
import { type Call, type ControlPlane, type HeldInvocation, MAX_ANSWER_BYTES } from '../control.ts';
import type { ErrorCode } from '../errors/codes.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { textAnswer } from '../http/answer.ts';
import { jsonBody, readJson } from '../http/bodies.ts';
import { preferencesOf } from '../http/request-options.ts';
import { BEGINNING, EVENT_ID, hasUpTo, positionOf } from '../invocations/event-id.ts';
import { jsonResponse, Responder } from '../invocations/respond.ts';
import { InvocationSchema } from '../schemas/invocations.ts';
import { SessionMessageSchema, sessionMessageOf } from '../validation/message.ts';
import { type App, BODY_CODES, define, EVENT_STREAM, json, problems, SECURITY } from './define.ts';
import { idempotencyKey } from './invoking.ts';

export const idParam = z.object({ id: z.string().min(1).max(128).openapi({ description: 'Id of the invocation' }) });

const streamHeaders = z.object({
  'last-event-id': z.string().regex(EVENT_ID, 'is not the id of an event').optional().openapi({
    description: 'Resume after this event: the `id` of its frame, `<epoch>-<number>`, or its number alone',
    example: '1763776000000-17',
  }),
  prefer: z.string().max(1024).optional().openapi({ description: '`cancel-on-disconnect`, as for invoking' }),
});

const cancelQuery = z.object({
  reason: z.string().min(1).max(256).default('The client cancelled it.').openapi({
    description: 'The message of the `cancelled` error',
  }),
});

const messageHeaders = z.object({
  'idempotency-key': idempotencyKey.openapi({
    description:
      'The inferlet receives only one of several messages with the same key and content within a minute. Without a key, do not repeat a request that failed with `store-unavailable` or `origin-unavailable`: the inferlet may receive the message twice.',
  }),
});

/** Routes to watch, message and cancel an invocation. */
export function invocationRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  const responder = new Responder(control, settings);

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/invocations/{id}',
      operationId: 'getInvocation',
      tags: ['Invocations'],
      summary: 'Status of an invocation',
      security: SECURITY,
      request: { params: idParam },
      responses: { 200: json(InvocationSchema, 'The invocation'), ...problems('unknown-invocation') },
    }),
    async (c) => jsonResponse(c, await findInvocation(control, callOf(c), c.req.valid('param').id), 200),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/invocations/{id}/input',
      operationId: 'getInput',
      tags: ['Invocations'],
      summary: 'Input of an invocation',
      description:
        'With the input and `{function}@{version}`, the invocation can be run again. After the end of an invocation, an input of at most 16 KiB is kept as long as the events; a longer one is not kept.',
      security: SECURITY,
      request: { params: idParam },
      responses: {
        200: json(z.unknown(), 'The input'),
        ...problems('unknown-invocation', 'unknown-input', 'too-many-requests'),
      },
    }),
    async (c) => {
      const { id } = c.req.valid('param');
      const input = await control.input(callOf(c), id);
      if (input === null) throw unknownInvocation(id);
      return textAnswer(c, input, 200, { 'content-type': 'application/json' });
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/invocations/{id}/events',
      operationId: 'streamInvocation',
      tags: ['Invocations'],
      summary: 'Events of an invocation',
      description:
        'All events from the first one, or from the one after `Last-Event-ID`: past events, then live ones until `result` or `error`. A live event is sent up to a quarter of a second before it is stored, so a crash may lose it. An event `gap` then follows, with a number `after`. There are two cases. If the runtime died before it stored events, the id of the `gap` has a higher number than `after`: events with numbers between them may be missing, and later events have higher numbers. If the store lost writes, the id of the `gap` is `<epoch>-<after>` with a new epoch: the client must discard its events with numbers above `after`, and the new epoch uses these numbers again. 204 when the client has seen all events.',
      security: SECURITY,
      request: { params: idParam, headers: streamHeaders },
      responses: {
        200: { description: 'The events', content: EVENT_STREAM },
        204: { description: 'The invocation has ended and the client has seen every event' },
        ...problems('unknown-invocation', 'invalid-input'),
      },
    }),
    async (c) => {
      const call = callOf(c);
      const { id } = c.req.valid('param');
      const headers = c.req.valid('header');
      const after = positionOf(headers['last-event-id'] ?? '') ?? BEGINNING;
      const invocation = await findInvocation(control, call, id);
      const last = positionOf(invocation.lastEventId) ?? BEGINNING;
      if (hasEnded(invocation) && hasUpTo(after, last)) return c.body(null, 204);
      const { cancelOnDisconnect } = preferencesOf(headers.prefer);
      // A disconnection will cancel the invocation, so the key needs the scope `invoke`: `callOf` throws when the key lacks it.
      if (cancelOnDisconnect) callOf(c, 'invoke');
      return responder.stream(c, call, id, after, { cancelOnDisconnect });
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/invocations/{id}/events',
      operationId: 'deleteEvents',
      tags: ['Invocations'],
      summary: 'Delete the events of an ended invocation',
      description:
        'Deletes the events of an ended invocation, with its outcome, and its input, before their retention is over. Its status, its files and the log of its function stay. The quota `redis-bytes` counts the deleted bytes until their retention is over.',
      security: SECURITY,
      request: { params: idParam },
      responses: { 204: { description: 'Deleted' }, ...problems('unknown-invocation', 'conflict') },
    }),
    async (c) => {
      const { id } = c.req.valid('param');
      if (!(await control.deleteEvents(callOf(c, 'invoke'), id))) throw unknownInvocation(id);
      return c.body(null, 204);
    },
  );

  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/invocations/{id}/messages',
      operationId: 'sendMessage',
      tags: ['Invocations'],
      summary: 'Send a message to a running invocation',
      description: 'The inferlet receives messages in order. `{"close": true}` tells it that none will follow.',
      security: SECURITY,
      request: {
        params: idParam,
        headers: messageHeaders,
        body: jsonBody(SessionMessageSchema),
      },
      responses: {
        202: json(z.object({ accepted: z.literal(true) }), 'Queued for the inferlet'),
        ...problems('unknown-invocation', 'conflict', ...BODY_CODES, 'too-many-requests'),
      },
    }),
    async (c) => {
      const call = callOf(c, 'invoke');
      const { id } = c.req.valid('param');
      const key = c.req.valid('header')['idempotency-key'];
      const message = await sessionMessageOf(c.get('body'), settings.limits.messageBytes);
      const isRepeatable = key !== undefined || 'close' in message;
      const isKnown = await control.sendMessage(call, id, message, key).catch((error: unknown) => {
        throw isRepeatable ? error : withoutRetry(error);
      });
      if (!isKnown) throw unknownInvocation(id);
      return c.json({ accepted: true }, 202);
    },
  );

  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/invocations/{id}/answer',
      operationId: 'answerQuestion',
      tags: ['Invocations'],
      summary: 'Answer the question of a waiting invocation',
      description:
        'The body is the answer, of at most 64 KiB. The schema of `question` must accept it. The invocation then continues. The first answer wins; a later one is refused with `not-waiting`.',
      security: SECURITY,
      request: {
        params: idParam,
        query: z.object({
          question: z.coerce.number().int().min(1).optional().openapi({
            description: 'Number of the question; the answer is refused when the invocation now asks another one',
          }),
        }),
        body: { required: true, content: { 'application/json': { schema: { description: 'The answer' } } } },
      },
      responses: {
        200: json(InvocationSchema, 'The invocation, which goes on'),
        ...problems('unknown-invocation', 'not-waiting', ...BODY_CODES, 'too-many-requests', 'quota-storage'),
      },
    }),
    async (c) => {
      const call = callOf(c, 'invoke');
      const { id } = c.req.valid('param');
      const { text, value } = await readJson(c.get('body'), MAX_ANSWER_BYTES);
      const answer = { text, value, question: c.req.valid('query').question };
      const invocation = await control.answer(call, id, answer);
      if (invocation === null) throw unknownInvocation(id);
      return jsonResponse(c, invocation, 200);
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/invocations/{id}',
      operationId: 'cancelInvocation',
      tags: ['Invocations'],
      summary: 'Cancel an invocation',
      description: 'An ended invocation does not change.',
      security: SECURITY,
      request: { params: idParam, query: cancelQuery },
      responses: {
        200: json(InvocationSchema, 'The invocation has ended'),
        202: json(InvocationSchema, 'The invocation was asked to stop; its events tell when it has ended'),
        ...problems('unknown-invocation', 'invalid-input'),
      },
    }),
    async (c) => {
      const { id } = c.req.valid('param');
      const invocation = await control.cancel(callOf(c, 'invoke'), id, c.req.valid('query').reason);
      if (invocation === null) throw unknownInvocation(id);
      return jsonResponse(c, invocation, hasEnded(invocation) ? 200 : 202);
    },
  );
}

/** Errors after which the inferlet may still receive the message. */
const UNCERTAIN: ReadonlySet<ErrorCode> = new Set(['store-unavailable', 'origin-unavailable']);

/** The error without the advice to retry, since a repeated message might be delivered twice. */
function withoutRetry(error: unknown): unknown {
  if (!(error instanceof GatewayError) || !UNCERTAIN.has(error.code)) return error;
  const { code, message, field, members, headers, cause } = error;
  return new GatewayError(code, message, {
    field,
    members,
    cause,
    hint: 'The function may receive the message still. Send messages with an Idempotency-Key to repeat them.',
    headers: { ...headers, 'x-should-retry': 'false' },
  });
}

async function findInvocation(control: ControlPlane, call: Call, id: string): Promise<HeldInvocation> {
  const invocation = await control.invocation(call, id);
  if (invocation === null) throw unknownInvocation(id);
  return invocation;
}

/** The error for an id that the tenant has no invocation for. */
export function unknownInvocation(id: string): GatewayError {
  return new GatewayError('unknown-invocation', `There is no invocation "${id}".`);
}

function hasEnded(invocation: HeldInvocation): boolean {
  return isFinal(invocation.status);
}
