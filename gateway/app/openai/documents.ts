/** Documentation of one route in `/openapi.json`. Shows the main parameters; the `input` schema of the function that serves the route has all. */
export interface Documented {
  readonly path: string;
  readonly tag: 'OpenAI-compatible' | 'Anthropic-compatible';
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly body: object;
  readonly answer: object;
}

const MODEL = { type: 'string', description: 'A model or an alias of `GET /v1/models`' };
const STREAM = { type: 'boolean', default: false, description: 'Answer with server-sent events' };

const servedBy = (functionName: string): string =>
  `Served by the function \`${functionName}\`; \`GET /v1/functions/${functionName}\` shows every parameter under \`manifest.input\`. `;
const DISCONNECTING =
  'When the client disconnects, its invocation is cancelled, unless the request had an `Idempotency-Key`: then the same request, sent again, ' +
  'gets the answer of that invocation, or its stream from the beginning. `content-location` names the invocation.';

/**
 * A route that generates text.
 *
 * @param required the parameter that is required beside `model`
 * @param answer `object` of the answer. The route's operation is named after it: `chat.completion` gives `createChatCompletion`
 */
function generatorRoute(
  name: string,
  functionName: string,
  required: string,
  input: object,
  answer: string,
): Documented {
  return {
    path: `/v1/${name}`,
    tag: 'OpenAI-compatible',
    operationId: `create${answer.replaceAll(/(^|[._])(\w)/g, (_all, _border, letter: string) => letter.toUpperCase())}`,
    summary: `OpenAI-compatible: ${name}`,
    description: servedBy(functionName) + DISCONNECTING,
    body: {
      type: 'object',
      required: ['model', required],
      properties: { model: MODEL, [required]: input, stream: STREAM },
      additionalProperties: true,
    },
    answer: {
      type: 'object',
      required: ['id', 'object', 'model'],
      properties: { id: { type: 'string' }, object: { const: answer }, model: { type: 'string' } },
      additionalProperties: true,
    },
  };
}

/** A route of Anthropic's Messages API. */
function messagesRoute(
  name: string,
  operationId: string,
  required: readonly string[],
  properties: Readonly<Record<string, object>>,
  answer: object,
): Documented {
  const input = { type: 'array', items: { type: 'object' }, description: 'The conversation so far' };
  return {
    path: `/v1/${name}`,
    tag: 'Anthropic-compatible',
    operationId,
    summary: `Anthropic-compatible: ${name}`,
    description: servedBy('anthropic-messages') + DISCONNECTING,
    body: {
      type: 'object',
      required: ['model', 'messages', ...required],
      properties: { model: MODEL, messages: input, ...properties },
      additionalProperties: true,
    },
    answer,
  };
}

/** A route of an encoder. Its answer has no id, and is never streamed. */
function encoderRoute(
  name: string,
  functionName: string,
  summary: string,
  inputs: Readonly<Record<string, object>>,
): Documented {
  return {
    path: `/v1/${name}`,
    tag: 'OpenAI-compatible',
    operationId: `create${name[0]?.toUpperCase()}${name.slice(1)}`,
    summary,
    description: `${servedBy(functionName)}The model is an entry \`[[model]]\` of \`pie.toml\` with a \`kind\`.`,
    body: {
      type: 'object',
      required: ['model', ...Object.keys(inputs)],
      properties: { model: { type: 'string', description: 'An encoder of the platform' }, ...inputs },
      additionalProperties: true,
    },
    answer: {
      type: 'object',
      required: ['object', 'model', 'usage'],
      properties: { object: { const: 'list' }, model: { type: 'string' }, usage: { type: 'object' } },
      additionalProperties: true,
    },
  };
}

export const ROUTES = {
  completions: generatorRoute(
    'completions',
    'openai-completions',
    'prompt',
    { description: 'A text or a list of token ids, or several of either' },
    'text_completion',
  ),
  chat: generatorRoute(
    'chat/completions',
    'openai-chat',
    'messages',
    { type: 'array', items: { type: 'object' }, description: 'The conversation so far' },
    'chat.completion',
  ),
  responses: generatorRoute(
    'responses',
    'openai-responses',
    'input',
    { description: 'A text, or a list of items' },
    'response',
  ),
  messages: messagesRoute(
    'messages',
    'createMessage',
    ['max_tokens'],
    { max_tokens: { type: 'integer', description: 'Most tokens to generate' }, stream: STREAM },
    {
      type: 'object',
      required: ['id', 'type', 'role', 'model', 'content', 'stop_reason', 'usage'],
      properties: {
        id: { type: 'string' },
        type: { const: 'message' },
        role: { const: 'assistant' },
        model: { type: 'string' },
        content: { type: 'array', items: { type: 'object' } },
      },
      additionalProperties: true,
    },
  ),
  countTokens: messagesRoute(
    'messages/count_tokens',
    'countMessageTokens',
    [],
    {},
    { type: 'object', required: ['input_tokens'], properties: { input_tokens: { type: 'integer' } } },
  ),
  embeddings: encoderRoute('embeddings', 'openai-embeddings', 'OpenAI-compatible: embeddings', {
    input: { description: 'A text, or several' },
  }),
  rerank: encoderRoute('rerank', 'rerank', 'Rank documents', {
    query: { type: 'string', description: 'The question that the documents should answer' },
    documents: { type: 'array', description: 'Texts, or objects with a `text`' },
  }),
} as const;

/** The answer to the deletion of a response. */
export const RESPONSE_DELETED = {
  type: 'object',
  required: ['id', 'object', 'deleted'],
  properties: { id: { type: 'string' }, object: { const: 'response' }, deleted: { const: true } },
} as const;

const ITEM_ID = { type: ['string', 'null'] };

/** A page of the items of a response. */
export const ITEM_LIST = {
  type: 'object',
  required: ['object', 'data', 'first_id', 'last_id', 'has_more'],
  properties: {
    object: { const: 'list' },
    data: { type: 'array', items: { type: 'object' } },
    first_id: ITEM_ID,
    last_id: ITEM_ID,
    has_more: { type: 'boolean' },
  },
} as const;
