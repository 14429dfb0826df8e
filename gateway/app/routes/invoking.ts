import { createRoute, z } from '@hono/zod-openapi';
import { FAILURE_CODES } from '#scheduler/invocations/types.ts';
import { type AppSettings, callOf } from '../context.ts';
import type { ControlPlane, InvokeRequest } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { readJson } from '../http/bodies.ts';
import {
  cancelAfterOf,
  debounceOf,
  MAX_CHOSEN_KEY_LENGTH,
  preferencesOf,
  VISIBLE_ASCII,
  wantsEventStream,
} from '../http/request-options.ts';
import { BEGINNING } from '../invocations/event-id.ts';
import { Responder } from '../invocations/respond.ts';
import { InvocationSchema, OutcomeSchema } from '../schemas/invocations.ts';
import { InputChecker } from '../validation/input.ts';
import {
  type App,
  BODY_CODES,
  define,
  EVENT_STREAM,
  INVOKED_HEADERS,
  json,
  LOCATION,
  problems,
  SECURITY,
} from './define.ts';
import { invokeFunction, referenceParam } from './functions.ts';

/** Valid values of `Idempotency-Key`. */
export const idempotencyKey = z.string().min(1).max(MAX_CHOSEN_KEY_LENGTH).optional().openapi({
  description:
    'A second request with the same key and body, for the same function, gets the outcome of the first one, with `Idempotency-Replayed: true`. It is refused with 409 while the first one runs, and with 422 when it has another body or function. The key is kept for some time after the end of the invocation: a day, unless the operator sets another time.',
});

/** A name in a header: visible ASCII characters. */
const headerName = z.string().min(1).max(MAX_CHOSEN_KEY_LENGTH).regex(VISIBLE_ASCII).optional();

/** Valid values of `X-Session-Affinity`. */
export const sessionAffinity = headerName.openapi({
  description:
    'Invocations of your tenant with the same value run on the same GPU host while it has room for them, so that they find the prefixes which earlier ones computed there: 1 to 256 visible ASCII characters. It has no effect where all invocations of a tenant run on one host.',
  example: 'conversation-4711',
});

const invokeHeaders = z.object({
  prefer: z.string().max(1024).optional().openapi({
    description:
      '`respond-async` answers 202 at once; `wait=N` waits N seconds for the outcome, then answers 202. `cancel-on-disconnect` cancels the invocation when the client leaves before its end; otherwise it keeps running and can be reattached.',
  }),
  'idempotency-key': idempotencyKey,
  'cancel-after': z.string().max(32).optional().openapi({
    description:
      'The deadline, counted from the submission, including the time in the queue: seconds, or `30s`, `5m`, `1h`; 24 hours at most. Time in which the invocation waits for a person does not count. The invocation then ends with `deadline-exceeded`. The wall time of the function still bounds each attempt.',
    example: '5m',
  }),
  'x-session-affinity': sessionAffinity,
  'concurrency-key': headerName.openapi({
    description:
      'At most `Concurrency-Limit` invocations of your tenant with the same key wait or run at once; another one is refused with `concurrency-key-busy`. 1 to 256 visible ASCII characters.',
    example: 'user-4711',
  }),
  'concurrency-limit': z
    .string()
    .regex(/^[1-9]\d{0,2}$|^1000$/, 'must be a whole number from 1 to 1000')
    .optional()
    .openapi({ description: 'Limit for the `Concurrency-Key`; 1 by default' }),
  'debounce-key': headerName.openapi({
    description:
      'The invocation starts after `Debounce-Delay`. A later request for the same function with the same key replaces the invocation while it waits: the earlier one ends as `superseded`, its error names the `successor`, and the delay starts anew, until `Debounce-Max` has passed since the first. 1 to 256 visible ASCII characters; 1,000 keys of your tenant may wait at once.',
    example: 'document-4711',
  }),
  'debounce-delay': z.string().max(32).optional().openapi({
    description:
      'Delay for the `Debounce-Key`: seconds, or `30s`, `5m`, `1h`; 1 second to 24 hours. The default deadline counts from the end of the delay; `Cancel-After` counts from the submission.',
    example: '30s',
  }),
  'debounce-max': z.string().max(32).optional().openapi({
    description:
      'Longest time from the first invocation of a `Debounce-Key` to the start; ten delays by default, 24 hours at most',
    example: '5m',
  }),
  'webhook-url': z.string().optional().openapi({
    description:
      'URL that is notified of the end: a POST as in Standard Webhooks, signed with the secret of `GET /v1/webhooks/secret` and repeated for up to a day until the answer is 2xx. An https URL of a public host, without credentials, 2,048 bytes at most.',
    example: 'https://example.com/hooks/pie',
  }),
});

function concurrencyOf(key: string | undefined, limit: string | undefined): InvokeRequest['concurrency'] {
  if (key !== undefined) return { key, limit: Number(limit ?? 1) };
  if (limit === undefined) return undefined;
  throw new GatewayError('invalid-input', 'Concurrency-Limit is the limit of a Concurrency-Key, which is missing.', {
    field: 'concurrency-key',
    hint: 'Send both, or none of them. `pie invoke` sends the key with --concurrency-key.',
  });
}

export function invokingRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  const inputs = new InputChecker();
  const responder = new Responder(control, settings);

  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/functions/{reference}/invocations',
      operationId: 'invokeFunction',
      tags: ['Invocations'],
      summary: 'Invoke a function',
      description:
        'The body is the input. `Accept: text/event-stream` streams the events, `application/json` waits for the outcome, `Prefer: respond-async` answers at once with the address of the invocation.',
      security: SECURITY,
      request: {
        params: referenceParam,
        headers: invokeHeaders,
        body: { content: { 'application/json': { schema: { description: "The function's input" } } } },
      },
      responses: {
        200: {
          description: 'The outcome, or the events',
          headers: INVOKED_HEADERS,
          content: { 'application/json': { schema: OutcomeSchema }, ...EVENT_STREAM },
        },
        202: {
          ...json(InvocationSchema, 'Accepted; `Location` is its address'),
          headers: { ...INVOKED_HEADERS, ...LOCATION },
        },
        ...problems(
          'unknown-function',
          'function-pending',
          'unknown-alias',
          ...BODY_CODES,
          'invalid-webhook',
          'idempotency-in-flight',
          'idempotency-key-reused',
          'too-many-requests',
          'concurrency-key-busy',
          'debounce-keys-full',
          'quota-requests',
          'quota-concurrency',
          'runtime-unavailable',
          ...FAILURE_CODES,
          'shutting-down',
        ),
      },
    }),
    async (c) => {
      const call = callOf(c, 'invoke');
      const headers = c.req.valid('header');
      const { reference } = c.req.valid('param');
      const { respondAsync, waitMs, cancelOnDisconnect, singleUseKey } = preferencesOf(headers.prefer);
      const cancelAfterMs = cancelAfterOf(headers['cancel-after']);
      const debounce = debounceOf(headers, cancelAfterMs);
      // In a separate function, so that no reference to the body's text is left when it returns: the body is then released before the answer, which
      // may take long.
      const begin = async () => {
        const { text, value } = await readJson(c.get('body'), settings.limits.inputBytes);
        return invokeFunction(control, call, reference, {
          check: (fn) => inputs.check(fn, value),
          input: text,
          idempotencyKey: headers['idempotency-key'],
          hasSingleUseKey: singleUseKey,
          cancelAfterMs,
          webhookUrl: headers['webhook-url'],
          affinity: headers['x-session-affinity'],
          concurrency: concurrencyOf(headers['concurrency-key'], headers['concurrency-limit']),
          debounce,
          isFollowed: !respondAsync || waitMs !== null,
        });
      };
      const { replayed = false, ...invocation } = await begin();
      c.get('body').release();
      const { id } = invocation;
      const options = { cancelOnDisconnect, replayed };
      if (respondAsync && waitMs === null) return responder.accepted(c, invocation, options);
      if (!respondAsync && wantsEventStream(c.req.header('accept')))
        return responder.stream(c, call, id, BEGINNING, options);
      if (waitMs !== null) return await responder.outcomeWithin(c, call, id, waitMs, options);
      return await responder.outcome(c, call, id, options);
    },
  );
}
