import { CODES } from '../errors/codes.ts';
import { GatewayError, openAiError } from '../errors/gateway-error.ts';
import { JsonText } from '../http/json.ts';

/** The `error` that the function of an OpenAI-compatible route returns, instead of a response, to refuse a request. */
interface Refusal {
  readonly message: string;
  readonly param: string | null;
  readonly code: string | null;
}

/** Hint for an error that names no parameter: the default hint of `invalid-parameter` refers to `error.param`. */
const BODY_HINT = 'Compare the body with the documentation of the route.';

/** Maximum characters of a refusal. The gateway does not parse a longer output, and takes it for a response. */
const MAX_REFUSAL = 16_384;

/** The error in OpenAI's form: a body that violates the schema is a bad request (400), and `field` uses OpenAI's notation. */
export function asOpenAiError(caught: unknown): GatewayError {
  const error = GatewayError.from(caught);
  if (error.code !== 'invalid-input') return error;
  const param = paramOf(error.field ?? '');
  const ownHint = error.hint === CODES['invalid-input'].hint ? undefined : error.hint;
  return new GatewayError('invalid-parameter', messageOf(error, param), {
    ...(param !== '' && { field: param }),
    hint: ownHint ?? (param === '' ? BODY_HINT : undefined),
    headers: error.headers,
    cause: error,
  });
}

/** The message of an input's fault, with the place in the notation of `param`. */
function messageOf({ message, field = '' }: GatewayError, param: string): string {
  const fault = message.replace(/^The input of "[^"]*" is not valid: /, '');
  return fault.startsWith(field) && param !== '' ? `${param}${fault.slice(field.length)}` : fault;
}

/** The error with the advice to send the request again. */
export function asRetryable(error: GatewayError): GatewayError {
  const { code, message, hint, field, members, headers, cause } = error;
  return new GatewayError(code, message, {
    hint,
    field,
    members,
    cause,
    headers: { ...headers, 'x-should-retry': 'true' },
  });
}

/** The error that a function returned, or null when it returned a response. */
export function refusalIn(output: unknown): GatewayError | null {
  if (output instanceof JsonText) return output.text.length > MAX_REFUSAL ? null : refusalIn(output.value);
  if (typeof output !== 'object' || output === null || !('error' in output)) return null;
  const { error } = output;
  // A response of /v1/responses has `error: null` when nothing failed.
  if (typeof error !== 'object' || error === null || !('message' in error)) return null;
  const { message, param, code } = error as Refusal;
  const field = typeof param === 'string' ? param : undefined;
  if (code === 'context_length_exceeded') return new GatewayError('context-too-long', String(message), { field });
  const hint = field === undefined ? BODY_HINT : undefined;
  return new GatewayError('invalid-parameter', String(message), { field, hint });
}

/** The last frame of a failed stream on these routes. */
export function openAiErrorFrame(error: GatewayError): string {
  return `data: ${JSON.stringify({ error: openAiError(error) })}\n\n`;
}

/** Rewrites a JSON pointer in OpenAI's notation: `/messages/0/role` becomes `messages[0].role`. */
function paramOf(pointer: string): string {
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((path, step) => {
      if (/^\d+$/.test(step)) return `${path}[${step}]`;
      return path === '' ? step : `${path}.${step}`;
    }, '');
}
