import {
  type Context,
  ContextOverflowError,
  defineInferlet,
  type EncoderModel,
  encoders,
  ImageError,
  InferletError,
  type Invocation,
} from '@pie/inferlet';
import { attempt, runtime } from '@pie/inferlet/raw';
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
      return { error: { message: shortened(message), type: 'invalid_request_error', param, code } };
    }
  });
}

/** Maximum characters of a refusal's message, which may repeat a text of the request. The gateway takes an output above 16,384 characters for an answer. */
const MAX_MESSAGE = 2000;
/** Characters of a long message's end that are kept: there, it says what helps. */
const MESSAGE_END = 500;

/** The message without its middle if it is too long. */
function shortened(message: string): string {
  if (message.length <= MAX_MESSAGE) return message;
  return `${message.slice(0, MAX_MESSAGE - MESSAGE_END)} … ${message.slice(-MESSAGE_END)}`.toWellFormed();
}

/** The tokens of a model that this invocation can hold, and what leaves it fewer than the model's context has (`runtime/host/session/runtime.ts`). */
interface Room {
  readonly tokens: number;
  readonly cap?: string;
}

function roomOf({ model }: Context): Room {
  const whole = { tokens: model.contextLength };
  const rooms = JSON.parse(attempt(() => runtime.debugQuery('room'))) as Readonly<Record<string, Room>>;
  return rooms[model.name] ?? whole;
}

/** Number of tokens that the invocation can still add to a context, where something leaves it less than the model's context. */
export function tokensLeft(ctx: Context): number {
  const { tokens, cap } = roomOf(ctx);
  return cap === undefined ? Number.POSITIVE_INFINITY : Math.max(0, tokens - ctx.length);
}

/**
 * Runs `begin`, which fills `ctx` with the prompt in the parameter `param`, or prepares that, and returns what has the prompt's length. Refuses a prompt
 * that is too long for the tokenizer, the context or a limit of the platform, that is empty although the model has no token to begin a text with, or
 * that the model's chat template refuses.
 */
export function prompting<T extends { readonly length: number }>(param: string, ctx: Context, begin: () => T): T {
  let prompt: T;
  try {
    prompt = begin();
  } catch (error) {
    if (!(error instanceof InferletError) || error instanceof ImageError) throw error;
    if (error instanceof ContextOverflowError) throw tooLong(param, ctx, `resulted in ${error.tokens} tokens`);
    if (error.code === 'limit-exceeded') throw tooLong(param, ctx, `cannot be tokenized: ${error.message}`);
    if (isRequestFault(error.code)) throw new RequestError(error.message, param);
    throw error;
  }
  if (prompt.length > roomOf(ctx).tokens) throw tooLong(param, ctx, `resulted in ${prompt.length} tokens`);
  return prompt;
}

/** The refusal of a prompt that is too long, in OpenAI's words: clients that shorten their history look for them. */
function tooLong(param: string, ctx: Context, fault: string): RequestError {
  const { tokens, cap } = roomOf(ctx);
  const [noun] = param.split('[', 1);
  const message = `This model's maximum context length is ${tokens} tokens. However, your ${noun} ${fault}. Please reduce the length of the ${noun}.`;
  const more =
    cap === undefined ? '' : ` The model itself has a context of ${ctx.model.contextLength} tokens, but ${cap}.`;
  return new RequestError(message + more, param, 'context_length_exceeded');
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

/** The encoder of that name and kind. @throws RequestError */
export function encoderNamed(name: string, kind: EncoderModel['kind']): EncoderModel {
  const all = encoders();
  const found = all.find((encoder) => encoder.name === name);
  if (found?.kind === kind) return found;
  const names = all.filter((encoder) => encoder.kind === kind).map((encoder) => encoder.name);
  const [article, noun] = kind === 'embedding' ? ['an', 'embedding model'] : ['a', 'reranker'];
  const hint = names.length === 0 ? `The platform has no ${noun}.` : `There are: ${names.join(', ')}.`;
  const text = found ? `The model "${name}" is not ${article} ${noun}.` : `The model "${name}" does not exist.`;
  throw new RequestError(`${text} ${hint}`, 'model', 'model_not_found');
}
