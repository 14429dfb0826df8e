/** Documentation of one route in `/openapi.json`. The `input` schema of the function that serves the route has all parameters. */
export interface Documented {
  readonly path: string;
  readonly operationId: string;
  readonly summary: string;
  readonly description: string;
  readonly body: object;
  readonly answer: object;
}

const MODEL = { type: 'string', description: 'A model or an alias of `GET /v1/models`' };
const STREAM = { type: 'boolean', default: false, description: 'Answer with server-sent events' };

function documented(name: string, functionName: string, required: string, input: object, answer: string): Documented {
  return {
    path: `/v1/${name}`,
    operationId: `create${answer.replaceAll(/(^|[._])(\w)/g, (_all, _border, letter: string) => letter.toUpperCase())}`,
    summary: `OpenAI-compatible: ${name}`,
    description:
      `Served by the function \`${functionName}\`; \`GET /v1/functions/${functionName}\` shows every parameter under \`manifest.input\`. ` +
      'A client that leaves takes its invocation with it, unless it has sent an `Idempotency-Key`: then the same request, sent again, joins the ' +
      'invocation while it runs and gets its answer, or its stream from the beginning, after. `content-location` names the invocation.',
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

export const ROUTES = {
  completions: documented(
    'completions',
    'openai-completions',
    'prompt',
    { description: 'A text or a list of token ids, or several of either' },
    'text_completion',
  ),
  chat: documented(
    'chat/completions',
    'openai-chat',
    'messages',
    { type: 'array', items: { type: 'object' }, description: 'The conversation so far' },
    'chat.completion',
  ),
  responses: documented(
    'responses',
    'openai-responses',
    'input',
    { description: 'A text, or a list of items' },
    'response',
  ),
} as const;
