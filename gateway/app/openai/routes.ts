import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { PLATFORM_TENANT } from '#scheduler/functions/types.ts';
import { FAILURE_CODES } from '#scheduler/invocations/types.ts';
import { type AppEnv, type AppSettings, callOf } from '../context.ts';
import type { Call, ControlPlane, ModelKind } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { readJson } from '../http/bodies.ts';
import { type App, define, problems, refusals, SECURITY } from '../routes/define.ts';
import { invokeFunction } from '../routes/functions.ts';
import { idempotencyKey, sessionAffinity } from '../routes/invoking.ts';
import { InputChecker } from '../validation/input.ts';
import { OpenAiAnswers } from './answer.ts';
import { ANTHROPIC_ERROR, anthropicErrorFrame } from './anthropic.ts';
import { type Documented, ITEM_LIST, RESPONSE_DELETED, ROUTES } from './documents.ts';
import { asOpenAiError, asRetryable, openAiErrorFrame } from './errors.ts';
import type { StreamStyle } from './frames.ts';
import { findModel, modelRoutes } from './models.ts';
import { StoredResponses } from './stored-responses.ts';

/** A route, the function that serves it, and how it streams. */
interface ServedRoute extends Documented {
  readonly functionName: string;
  readonly kind: ModelKind;
  /** Absent for a route that never streams. */
  readonly style?: StreamStyle;
  /** True when later requests may refer to an answer. */
  readonly isStored?: boolean;
  /** Members that the route adds to the body. */
  readonly adds?: Readonly<Record<string, unknown>>;
  /** Members that only the platform may set, with what a client sends instead. */
  readonly ownMembers?: Readonly<Record<string, string>>;
  /** Names of members whose data keeps its null members, besides {@link FREE_FORM}. */
  readonly freeForm?: readonly string[];
}

const CHUNKS: StreamStyle = { events: 'data', done: true, errorFrame: openAiErrorFrame };
/** The `input` of a `tool_use` block is the model's own data. */
const MESSAGES = {
  functionName: 'anthropic-messages',
  kind: 'causal',
  freeForm: ['input'],
  ownMembers: { count_tokens: 'Use the route /v1/messages/count_tokens.' },
} as const;

const SERVED_ROUTES: readonly ServedRoute[] = [
  { ...ROUTES.completions, functionName: 'openai-completions', kind: 'causal', style: CHUNKS },
  { ...ROUTES.chat, functionName: 'openai-chat', kind: 'causal', style: CHUNKS },
  // A stream of /v1/responses reports its success with `response.completed`; its clients expect no frame after it.
  {
    ...ROUTES.responses,
    functionName: 'openai-responses',
    kind: 'causal',
    style: { events: 'numbered', done: false, errorFrame: openAiErrorFrame },
    isStored: true,
    ownMembers: { previous_items: 'Send earlier items in `input`, or `previous_response_id`.' },
  },
  { ...ROUTES.messages, ...MESSAGES, style: { events: 'named', done: false, errorFrame: anthropicErrorFrame } },
  { ...ROUTES.countTokens, ...MESSAGES, adds: { count_tokens: true } },
  { ...ROUTES.embeddings, functionName: 'openai-embeddings', kind: 'embedding' },
  { ...ROUTES.rerank, functionName: 'rerank', kind: 'reranker' },
];

/** No parameter is checked here: the routes refuse a wrong one in OpenAI's form. */
const responseParam = z.object({ id: z.string().openapi({ description: 'Id of the response' }) });
const responseQuery = z.object({
  stream: z.string().optional().openapi({ description: 'Only `false`: a kept response is not streamed' }),
});
const pageQuery = z.object({
  limit: z.string().optional().openapi({ description: 'Most items, 1 to 100; 20 by default' }),
  order: z.string().optional().openapi({ description: '`desc` (by default), from the last item on, or `asc`' }),
  after: z.string().optional().openapi({ description: 'Id of the item before the page' }),
});

/** Error codes of the served routes. */
const SERVED_CODES = [
  'invalid-parameter',
  'context-too-long',
  'malformed-json',
  'unknown-model',
  'unknown-function',
  'function-pending',
  'unknown-invocation',
  'body-too-large',
  'unsupported-media-type',
  'too-many-requests',
  'quota-requests',
  'quota-concurrency',
  'runtime-unavailable',
  'idempotency-key-reused',
  ...FAILURE_CODES,
  'shutting-down',
] as const;

/** Maximum characters of a `prompt_cache_key`. */
const MAX_CACHE_KEY = 256;

/** `/v1/models`, and the routes of {@link SERVED_ROUTES}. */
export function openAiRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  modelRoutes(app, control);
  const answers = new OpenAiAnswers(control, settings);
  const inputs = new InputChecker();
  const stored = new StoredResponses(control, settings.limits.inputBytes);

  /** Makes the invocation that produces the answer. Releases the memory of the request's body, since the answer may take long. */
  const begin = async (c: Context<AppEnv>, call: Call, served: ServedRoute) => {
    const { functionName, kind, isStored = false, adds = {}, freeForm = [], ownMembers = {} } = served;
    const { value } = await readJson(c.get('body'), settings.limits.inputBytes);
    const sent = objectOf(value, new Set([...FREE_FORM, ...freeForm]));
    for (const [field, hint] of Object.entries(ownMembers))
      if (field in sent)
        throw new GatewayError('invalid-parameter', `\`${field}\` is no parameter of this API.`, { field, hint });
    const body = isStored ? await stored.resolve(call, sent) : sent;
    const model = await findModel(control, call, modelOf(body), kind);
    const input = { ...body, ...adds, model: model.aliasOf ?? model.name };
    const key = keyOf(c.req.header('idempotency-key'));
    const affinity = await affinityOf(c.req.header('x-session-affinity'), body.prompt_cache_key);
    // The clients retry unanswered requests by themselves: a retry joins the invocation of the first request.
    const { id, replayed = false } = await invokeFunction(control, call, functionName, {
      check: (fn) => inputs.check(fn, input),
      input: textOf(input, settings.limits.inputBytes),
      affinity,
      isFollowed: true,
      ...(key === undefined ? {} : { idempotencyKey: key, join: true }),
    });
    c.get('body').release();
    return {
      answering: { id, named: key !== undefined, replayed },
      streamed: body.stream === true && served.style !== undefined,
    };
  };

  const serve = async (c: Context<AppEnv>, served: ServedRoute): Promise<Response> => {
    const call = callOf(c, 'invoke');
    const { answering, streamed } = await begin(c, call, served);
    const { style } = served;
    const answer =
      streamed && style ? answers.stream(c, call, answering, style) : answers.answerWhole(c, call, answering);
    // Do not advise a retry: with the same key it would get the same failed invocation.
    if (answering.named) return answer;
    return answer.catch(async (caught: unknown) => {
      const error = GatewayError.from(caught);
      const mayRetry = error.code === 'unavailable' && (await isPlatformFunction(control, call, served));
      throw mayRetry ? asRetryable(error) : error;
    });
  };

  responseRoutes(app, stored);

  for (const served of SERVED_ROUTES) {
    define(
      app,
      createRoute({
        method: 'post',
        path: served.path,
        operationId: served.operationId,
        tags: [served.tag],
        summary: served.summary,
        description: served.description,
        security: SECURITY,
        request: { body: { required: true, content: { 'application/json': { schema: served.body } } } },
        responses: {
          200: {
            description: served.style ? 'The answer, or its stream when `stream` is true' : 'The answer',
            content: {
              'application/json': { schema: served.answer },
              ...(served.style && {
                'text/event-stream': {
                  schema: { type: 'string', description: 'Frames as the documentation of this API shows them' },
                },
              }),
            },
          },
          ...(served.tag === 'Anthropic-compatible'
            ? refusals(SERVED_CODES, { 'application/json': { schema: ANTHROPIC_ERROR } })
            : problems(...SERVED_CODES)),
        },
      }),
      (c) => inOpenAiForm(serve(c, served)),
    );
  }
}

/** The routes of a kept response. */
function responseRoutes(app: App, stored: StoredResponses): void {
  const route = { tags: ['OpenAI-compatible'], security: SECURITY };
  const answerOf = (description: string, schema: object) => ({
    200: { description, content: { 'application/json': { schema } } },
  });
  define(
    app,
    createRoute({
      ...route,
      method: 'get',
      path: '/v1/responses/{id}',
      operationId: 'getResponse',
      summary: 'OpenAI-compatible: a kept response',
      description:
        'A response of `POST /v1/responses`. It is kept as long as the results of invocations, unless its request had `store: false`.',
      request: { params: responseParam, query: responseQuery },
      responses: {
        ...answerOf('The response', ROUTES.responses.answer),
        ...problems('unknown-response', 'invalid-parameter', 'too-many-requests'),
      },
    }),
    (c) => {
      const { stream = 'false' } = c.req.valid('query');
      if (stream !== 'false')
        // A client that asked for events would read none in the response, and report no error.
        throw new GatewayError('invalid-parameter', 'stream is not false: a kept response is not streamed.', {
          field: 'stream',
          hint: 'Leave `stream` out, and read the whole response.',
        });
      return inOpenAiForm(stored.find(callOf(c), c.req.valid('param').id).then((found) => jsonAnswer(c, found)));
    },
  );
  define(
    app,
    createRoute({
      ...route,
      method: 'delete',
      path: '/v1/responses/{id}',
      operationId: 'deleteResponse',
      summary: 'OpenAI-compatible: delete a kept response',
      description: 'Later requests can refer neither to the response nor to its items.',
      request: { params: responseParam },
      responses: {
        ...answerOf('The response is deleted', RESPONSE_DELETED),
        ...problems('unknown-response', 'too-many-requests'),
      },
    }),
    (c) =>
      inOpenAiForm(stored.delete(callOf(c, 'invoke'), c.req.valid('param').id).then((done) => jsonAnswer(c, done))),
  );
  define(
    app,
    createRoute({
      ...route,
      method: 'get',
      path: '/v1/responses/{id}/input_items',
      operationId: 'listResponseInputItems',
      summary: 'OpenAI-compatible: the items that a kept response answers',
      description:
        'The items of the request, after the conversation of its `previous_response_id`. A later request may refer to the items that a response returned, but not to others.',
      request: { params: responseParam, query: pageQuery },
      responses: {
        ...answerOf('A page of items', ITEM_LIST),
        ...problems('unknown-response', 'invalid-parameter', 'body-too-large', 'too-many-requests'),
      },
    }),
    (c) => {
      const page = stored.inputItems(callOf(c), c.req.valid('param').id, c.req.valid('query'));
      return inOpenAiForm(page.then((found) => jsonAnswer(c, found)));
    },
  );
}

/** The answer, or its error in OpenAI's form. */
function inOpenAiForm(answer: Promise<Response>): Promise<Response> {
  return answer.catch((error: unknown) => {
    throw asOpenAiError(error);
  });
}

/**
 * True when the platform's own function serves the route for this tenant. Such a function has no effect besides its answer, so clients may retry
 * the request as they do with OpenAI's API. A tenant's own function may have had other effects before it failed.
 */
async function isPlatformFunction(control: ControlPlane, call: Call, { functionName }: ServedRoute): Promise<boolean> {
  if (call.principal.tenant === PLATFORM_TENANT) return true;
  const serving = await control.function(call, { name: functionName }).catch(() => null);
  return serving?.platform === true;
}

function keyOf(header: string | undefined): string | undefined {
  const key = idempotencyKey.safeParse(header);
  if (key.success) return key.data;
  throw new GatewayError('invalid-parameter', 'The Idempotency-Key is not 1 to 256 characters long.', {
    field: 'idempotency-key',
  });
}

/** The affinity of the request: the header, else `prompt_cache_key`, which OpenAI's clients know. An empty parameter counts as none. */
async function affinityOf(header: string | undefined, parameter: unknown): Promise<string | undefined> {
  const affinity = sessionAffinity.safeParse(header);
  if (!affinity.success)
    throw new GatewayError('invalid-parameter', 'The X-Session-Affinity is not 1 to 256 visible ASCII characters.', {
      field: 'x-session-affinity',
    });
  if (affinity.data !== undefined) return affinity.data;
  // The schema of the function's input refuses values other than strings.
  if (typeof parameter !== 'string' || parameter === '') return undefined;
  if (parameter.length <= MAX_CACHE_KEY) return `prompt-cache-key-${await digestOf(parameter)}`;
  throw new GatewayError('invalid-parameter', `The prompt_cache_key has more than ${MAX_CACHE_KEY} characters.`, {
    field: 'prompt_cache_key',
  });
}

/** SHA-256 in hexadecimal digits: an affinity must fit into a header, and the parameter may be any text. */
async function digestOf(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** The body as an object, without members that are null: clients write null for a member that they leave to its default. */
function objectOf(value: unknown, freeForm: ReadonlySet<string>): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return withoutNulls(value, freeForm);
  throw new GatewayError('invalid-parameter', 'The body is not a JSON object.', {
    hint: 'Send one JSON object whose members are the parameters.',
  });
}

/** Members whose value is data in a form of its own, in which null has a meaning: JSON schemas, and variables of a chat template. */
const FREE_FORM = ['parameters', 'schema', 'input_schema', 'chat_template_kwargs'] as const;

/** The object without its null members, at any depth. Items of lists stay, and so does the data of members with the names `freeForm`. */
function withoutNulls(members: object, freeForm: ReadonlySet<string>): Record<string, unknown> {
  const kept = Object.entries(members).filter(([, value]) => value !== null);
  const cleaned = kept.map(([name, value]) => [name, freeForm.has(name) ? value : nullsRemoved(value, freeForm)]);
  return Object.fromEntries(cleaned);
}

function nullsRemoved(value: unknown, freeForm: ReadonlySet<string>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Array.isArray(value) ? value.map((item) => nullsRemoved(item, freeForm)) : withoutNulls(value, freeForm);
}

/** Writes an input as JSON. @throws GatewayError `body-too-large`: the input may be longer than the body, since `1e20` becomes 21 digits */
function textOf(input: object, limitBytes: number): string {
  const text = JSON.stringify(input);
  if (new TextEncoder().encode(text).byteLength <= limitBytes) return text;
  throw new GatewayError('body-too-large', `The input has more than ${limitBytes} bytes once it is written anew.`);
}

function modelOf({ model }: Readonly<Record<string, unknown>>): string {
  if (typeof model === 'string' && model !== '') return model;
  throw new GatewayError('invalid-parameter', 'The parameter `model` is missing: name a model.', { field: 'model' });
}
