import { type Constraint, type Context, sendJson } from '@pie/inferlet';
import { type Answer, answer, begin, type Conversation, lengthOf } from '../openai-shared/chat.ts';
import { cachedTokens } from '../openai-shared/generate.ts';
import { prompting, RequestError, refuseUnsupported, serve, stamp } from '../openai-shared/request.ts';
import type { SamplingInput } from '../openai-shared/sampling.ts';
import { callConstraints, reportOf, schemaConstraint } from '../openai-shared/tools.ts';
import { type Content, type Turn, told } from './messages.ts';
import { Output } from './output.ts';
import { type RequestedChoice, type RequestedTool, toolChoiceOf, toolsOf } from './tools.ts';

/** The input that the schema in pie.json accepts. */
interface Input extends SamplingInput {
  readonly model: string;
  readonly messages: readonly Turn[];
  readonly system?: Content;
  readonly max_tokens?: number;
  /** True to answer with the number of tokens of the prompt alone. The route `/v1/messages/count_tokens` sets it. */
  readonly count_tokens?: boolean;
  readonly stop_sequences?: readonly string[];
  readonly tools?: readonly RequestedTool[];
  readonly tool_choice?: RequestedChoice;
  readonly output_config?: { readonly format?: Format };
  /** The older name of `output_config.format`. */
  readonly output_format?: Format;
  readonly thinking?: { readonly type: string; readonly budget_tokens?: number };
  readonly chat_template_kwargs?: Readonly<Record<string, unknown>>;
  readonly stream?: boolean;
}

interface Format {
  readonly schema: object;
}

/** Parameters of Anthropic's API for what the platform does not do. */
const UNSUPPORTED = {
  thread: 'conversations are not stored. Leave it out, and send the whole conversation.',
  container: 'there are no containers. Leave it out.',
  mcp_servers: 'no model here calls MCP servers. Leave it out, and offer their tools in `tools`.',
};

/** `POST /v1/messages` and `POST /v1/messages/count_tokens`. */
export const run = serve(async (input: Input, invocation) => {
  const { model, max_tokens, stream = false, stop_sequences: stop = [] } = input;
  refuseUnsupported(input, UNSUPPORTED);
  const { conversation, prefill } = await conversationOf(input);
  if (input.count_tokens) return { input_tokens: await inOwnWords(lengthOf(conversation, prefill, 'messages')) };
  if (max_tokens === undefined)
    throw new RequestError('`max_tokens` is missing: set the most tokens to generate.', 'max_tokens');
  const blank = stop.findIndex((text) => text.trim() === '');
  if (blank >= 0)
    throw new RequestError(
      `stop_sequences[${blank}] has only white space, which would end most answers at once: give it other characters.`,
      `stop_sequences[${blank}]`,
    );

  using ctx = await inOwnWords(beginAnswer(conversation, prefill));
  const promptTokens = ctx.length;
  if (stream && conversation.calls.dropped.length > 0) await sendJson(reportOf(conversation.calls));
  const { id } = stamp('msg_', invocation, model);
  const message = (content: readonly object[], ending: Ending, usage: object) => ({
    id,
    type: 'message',
    role: 'assistant',
    model,
    content,
    ...ending,
    container: null,
    usage: { ...usage, service_tier: 'standard' },
  });
  const usageOf = (outputTokens: number, cached = 0) => ({
    input_tokens: promptTokens - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    output_tokens: outputTokens,
  });
  const send = async (event: object) => {
    if (stream) await sendJson(event);
  };
  const output = new Output((index) => `toolu_${id.slice(-16)}_${index}`, send);
  // Either the platform or `sendStart` sends these events, once and before all others.
  const unsentStart = [{ type: 'message_start', message: message([], NOT_ENDED, usageOf(0)) }, { type: 'ping' }];
  const sendStart = async () => {
    for (const event of unsentStart.splice(0)) await send(event);
  };
  const frame = stream ? () => output.textFrame(unsentStart) : undefined;
  const options = { sampling: input, choice: 0, stop, topLogprobs: undefined, frame };
  const answered = await answer(ctx, conversation, options, async (part) => {
    // The platform has sent the frame's opening, which contains the first events.
    if (part.kind === 'piped') unsentStart.length = 0;
    await sendStart();
    await output.take(part);
  });
  // An answer without any part has not sent the first events yet.
  await sendStart();
  const content = await output.end();
  const ending = endingOf(answered);
  const usage = usageOf(answered.tokens, Math.min(promptTokens, cachedTokens()));
  if (!stream) return { ...message(content, ending, usage), ...reportOf(conversation.calls) };
  await send({ type: 'message_delta', delta: { ...ending, container: null }, usage });
  await send({ type: 'message_stop' });
  return null;
});

/** Makes a context that holds the conversation and the beginning of the answer. */
async function beginAnswer(conversation: Conversation, prefill: string): Promise<Context> {
  const ctx = await begin(conversation, 'messages');
  if (prefill !== '') prompting('messages', ctx, () => ctx.beginAnswer(prefill));
  return ctx;
}

/** The result of `work`. Refuses a prompt that is too long in Anthropic's words: clients that shorten their history look for them. */
async function inOwnWords<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof RequestError) || error.code !== 'context_length_exceeded') throw error;
    throw new RequestError(`prompt is too long: ${error.message}`, error.param, error.code);
  }
}

/** Why an answer ended. */
interface Ending {
  readonly stop_reason: 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | null;
  readonly stop_sequence: string | null;
  readonly stop_details: null;
}

const NOT_ENDED: Ending = { stop_reason: null, stop_sequence: null, stop_details: null };
const STOP_REASONS = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' } as const;

const endingOf = ({ finish, stopString }: Answer): Ending =>
  finish === 'stop' && stopString !== undefined
    ? { ...NOT_ENDED, stop_reason: 'stop_sequence', stop_sequence: stopString }
    : { ...NOT_ENDED, stop_reason: STOP_REASONS[finish] };

async function conversationOf(
  input: Input,
): Promise<{ readonly conversation: Conversation; readonly prefill: string }> {
  const { model, tool_choice = { type: 'auto' } } = input;
  const { messages, prefill } = told(input.system, input.messages);
  const offered = toolsOf(input.tools ?? []);
  const toolChoice = toolChoiceOf(tool_choice, offered);
  const conversation: Conversation = {
    model,
    messages,
    tools: offered.tools,
    toolChoice,
    calls: await callConstraints(model, offered.tools, toolChoice),
    parallelCalls: tool_choice.disable_parallel_tool_use !== true,
    constraint: await constraintOf(input),
    maxTokens: input.max_tokens,
    isBegun: prefill !== '',
    templateVariables: input.chat_template_kwargs,
    ...(input.thinking && { thinking: thinkingOf(input.thinking) }),
  };
  return { conversation, prefill };
}

/** Thoughts that are enabled have a middle effort, for templates that write none unless they are asked. */
const thinkingOf = ({ type, budget_tokens: maxTokens }: NonNullable<Input['thinking']>): Conversation['thinking'] =>
  type === 'disabled' ? { effort: 'none' } : { effort: 'medium', maxTokens };

async function constraintOf({ model, output_config, output_format }: Input): Promise<Constraint | undefined> {
  const at = output_format ? 'output_format' : 'output_config.format';
  const schema = (output_format ?? output_config?.format)?.schema;
  return schema && schemaConstraint(model, schema, `the schema of \`${at}\``, `${at}.schema`);
}
