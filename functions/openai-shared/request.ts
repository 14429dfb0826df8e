import { defineInferlet, InferletError, type Invocation } from '@pie/inferlet';
import { isRequestFault } from './faults.ts';

/** A request that the API must refuse with status 400. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
  readonly param: string | null;
  readonly code: string;

  /** @param param the place in OpenAI's notation: `messages[0].content` */
  constructor(message: string, param: string | null, code = 'invalid_value') {
    super(message);
    this.param = param;
    this.code = code;
  }
}

/**
 * Defines an inferlet behind an OpenAI-compatible route. The handler returns the response (null after a stream) and sends the stream's
 * messages. For a request that cannot be served, the inferlet returns `{error}`, which the gateway answers with status 400.
 */
export function serve<Input>(handler: (input: Input, invocation: Invocation) => Promise<object | null>) {
  return defineInferlet(async (input: Input, invocation): Promise<object | null> => {
    try {
      return await handler(input, invocation);
    } catch (error) {
      const { message, param, code } = refusalOf(error);
      return { error: { message, type: 'invalid_request_error', param, code } };
    }
  });
}

/** Error codes of a prompt that is too long. */
const TOO_LONG: ReadonlySet<string> = new Set(['context-overflow', 'limit-exceeded']);

/**
 * Runs `begin`, which reads the prompt in the parameter `param`. Refuses a prompt that is too long for the tokenizer or the context, that is empty
 * although the model has no token to begin a text with, or that the model's chat template refuses.
 */
export function prompting<T>(param: string, begin: () => T): T {
  try {
    return begin();
  } catch (error) {
    if (!(error instanceof InferletError)) throw error;
    if (TOO_LONG.has(error.code))
      throw new RequestError(`The prompt is too long: ${error.message}`, param, 'context_length_exceeded');
    if (isRequestFault(error.code)) throw new RequestError(error.message, param);
    throw error;
  }
}

/** Converts an error caused by the request itself; throws any other error again. */
function refusalOf(error: unknown): RequestError {
  if (error instanceof RequestError) return error;
  if (error instanceof InferletError) {
    if (error.code === 'context-overflow') return new RequestError(error.message, null, 'context_length_exceeded');
    if (isRequestFault(error.code)) return new RequestError(error.message, null);
  }
  throw error;
}

/** Refuses the parameters for which `reasons` has a text: they ask for what no model here can do. False, an empty list and absence ask for nothing. */
export function refuseUnsupported(input: object, reasons: Readonly<Record<string, string>>): void {
  for (const [param, reason] of Object.entries(reasons)) {
    const value: unknown = (input as Readonly<Record<string, unknown>>)[param];
    const asksForNothing = value === undefined || value === false || (Array.isArray(value) && value.length === 0);
    if (!asksForNothing)
      throw new RequestError(`\`${param}\` is not supported: ${reason}`, param, 'unsupported_parameter');
  }
}

/** The members that every response has. */
export const stamp = (prefix: string, { id, functionVersion }: Invocation, model: string) => ({
  id: `${prefix}${id.replace(/^inv_/, '')}`,
  created: Math.floor(Date.now() / 1000),
  model,
  system_fingerprint: `fp_${functionVersion}`,
});
