import { type Constraint, type Context, type Effort, jsonSchema, sendJson } from '@pie/inferlet';
import { type Answer, answer, begin, type Call, type Conversation, type Part } from '../openai-shared/chat.ts';
import { choicesOf, frameAround, stopsOf, usageOf } from '../openai-shared/generate.ts';
import type { RequestMessage } from '../openai-shared/images.ts';
import { chatLogprobs, TokenTexts } from '../openai-shared/logprobs.ts';
import {
  type ContentPart,
  contentOf,
  type EarlierCall,
  templateCallId,
  toolCallOf,
} from '../openai-shared/messages.ts';
import { RequestError, refuseUnsupported, serve, stamp } from '../openai-shared/request.ts';
import type { SamplingInput } from '../openai-shared/sampling.ts';
import { type RequestedChoice, type RequestedTool, requestedTools } from '../openai-shared/tool-request.ts';
import { callConstraints, reportOf, schemaConstraint, TEXT_PARAMETER } from '../openai-shared/tools.ts';

/** A message in the client's form. */
interface Message {
  readonly role: 'system' | 'developer' | 'user' | 'assistant' | 'tool' | 'function';
  readonly content?: string | readonly ContentPart[] | null;
  /** The text of a refusal, beside `content`. */
  readonly refusal?: string | null;
  readonly tool_calls?: readonly MessageCall[] | null;
  readonly tool_call_id?: string | null;
  /** The call of an answer to the deprecated `functions`. A message of the role `function` has its result. */
  readonly function_call?: FunctionCall | null;
  readonly name?: string | null;
  /** The assistant's thought, under the names that DeepSeek's API and OpenRouter's API have for it. */
  readonly reasoning_content?: string | null;
  readonly reasoning?: string | null;
}

interface FunctionCall {
  readonly name: string;
  readonly arguments: string;
}

interface MessageCall {
  readonly id: string;
  readonly function?: FunctionCall;
  readonly custom?: { readonly name: string; readonly input: string };
}

/** The input that the schema in pie.json accepts. */
interface Input extends SamplingInput {
  readonly model: string;
  readonly messages: readonly Message[];
  readonly tools?: readonly RequestedTool[];
  readonly tool_choice?: RequestedChoice;
  /** Deprecated: `tools`, of which an answer calls one at most. */
  readonly functions?: readonly {
    readonly name: string;
    readonly description?: string;
    readonly parameters?: object;
  }[];
  readonly function_call?: 'none' | 'auto' | { readonly name: string };
  readonly parallel_tool_calls?: boolean;
  readonly response_format?: {
    readonly type: 'text' | 'json_object' | 'json_schema';
    readonly json_schema?: { readonly name: string; readonly schema: object };
  };
  readonly max_completion_tokens?: number;
  readonly max_tokens?: number;
  readonly n?: number;
  readonly logprobs?: boolean;
  readonly top_logprobs?: number;
  readonly stop?: string | readonly string[];
  readonly chat_template_kwargs?: Readonly<Record<string, unknown>>;
  readonly reasoning_effort?: Effort;
  readonly thinking_budget?: number;
  readonly stream?: boolean;
  readonly stream_options?: { readonly include_usage?: boolean };
}

/** Parameters of OpenAI's API for what no model here can do. */
const UNSUPPORTED = {
  audio: 'no model here speaks. Leave it out.',
  moderation: 'there is no moderation. Leave it out.',
  web_search_options: 'no model here searches the web. Leave it out, and offer a tool that searches.',
};

/** `POST /v1/chat/completions`. */
export const run = serve(async (input: Input, invocation) => {
  const { model, n = 1, logprobs = false, top_logprobs = 0, stream = false, stream_options } = input;
  refuseUnsupported(input, UNSUPPORTED);
  if (top_logprobs > 0 && !logprobs) {
    throw new RequestError('`top_logprobs` needs `logprobs` to be true.', 'top_logprobs');
  }
  const conversation = await conversationOf(input);
  using ctx = await begin(conversation, 'messages');
  const promptTokens = ctx.length;
  if (stream && conversation.calls.dropped.length > 0) await sendJson(reportOf(conversation.calls));
  const head = stamp('chatcmpl-', invocation, model);
  const includeUsage = stream_options?.include_usage === true;
  const chunkOf = (choices: readonly object[], usage: object | null = null) => ({
    ...head,
    object: 'chat.completion.chunk',
    choices,
    ...(includeUsage && { usage }),
  });
  const texts = logprobs ? new TokenTexts(model) : undefined;
  const callId = (choice: number, index: number): string => `call_${head.id.slice(-16)}_${choice}_${index}`;
  const form = input.functions ? 'function_call' : 'tool_calls';

  const answerChoice = async (fork: Context, index: number) => {
    using _ = fork;
    const deltaChunk = (delta: object, more: object = {}) =>
      chunkOf([{ index, delta, logprobs: null, finish_reason: null, ...more }]);
    const send = async (delta: object, more?: object) => {
      if (stream) await sendJson(deltaChunk(delta, more));
    };
    const opening = { role: 'assistant', content: '', refusal: null };
    let openingSent = false;
    const emit = async (part: Part) => {
      // The platform sends piped text itself, behind the opening of the frame.
      if (part.kind === 'piped') openingSent = true;
      if (!openingSent) await send(part.kind === 'text' ? opening : { ...opening, content: null });
      openingSent = true;
      const delta = form === 'function_call' ? legacyDeltaOf(part) : deltaOf(part, (call) => callId(index, call));
      const logs = part.kind === 'text' && texts ? { content: chatLogprobs(texts, part.logs), refusal: null } : null;
      if (delta) await send(delta, { logprobs: logs });
    };
    const stop = stopsOf(input.stop);
    const pipedFrame = () =>
      frameAround((content) => deltaChunk({ content }), openingSent ? [] : [deltaChunk(opening)]);
    const frame = stream && !texts ? pipedFrame : undefined;
    const options = { sampling: input, choice: index, stop, topLogprobs: texts && top_logprobs, frame };
    const answered = await answer(fork, conversation, options, emit);
    if (!openingSent) await send(opening);
    await send({}, { finish_reason: finishReasonOf(answered) });
    return answered;
  };
  const finishReasonOf = ({ finish }: Answer) => (finish === 'tool_calls' ? FINISH_REASONS[form] : finish);
  const answers = await choicesOf(ctx, n, answerChoice);

  const usage = usageOf({
    prompt: promptTokens,
    completion: answers.reduce((sum, { tokens }) => sum + tokens, 0),
    reasoning: answers.reduce((sum, { thoughtTokens }) => sum + thoughtTokens, 0),
  });
  if (stream) {
    if (includeUsage) await sendJson(chunkOf([], usage));
    return null;
  }
  const choices = answers.map((answered, index) => ({
    index,
    message: {
      role: 'assistant',
      content: answered.text === '' && (answered.calls.length > 0 || answered.thought !== '') ? null : answered.text,
      refusal: null,
      ...(answered.thought !== '' && { reasoning_content: answered.thought }),
      ...(answered.calls.length > 0 && callsOf(answered.calls, form, (call) => callId(index, call))),
    },
    logprobs: texts ? { content: chatLogprobs(texts, answered.logs), refusal: null } : null,
    finish_reason: finishReasonOf(answered),
  }));
  return { ...head, object: 'chat.completion', choices, usage, ...reportOf(conversation.calls) };
});

/** The finish reason of an answer that ends with calls. */
const FINISH_REASONS = { tool_calls: 'tool_calls', function_call: 'function_call' } as const;

async function conversationOf(input: Input): Promise<Conversation> {
  const { model, functions, max_completion_tokens, max_tokens } = input;
  const { tools, toolChoice } =
    functions || typeof input.function_call === 'object' ? legacyTools(input) : toolsOf(input);
  return {
    model,
    messages: templateMessages(input.messages),
    tools,
    toolChoice,
    calls: await callConstraints(model, tools, toolChoice),
    parallelCalls: functions === undefined && (input.parallel_tool_calls ?? true),
    constraint: await constraintOf(model, input.response_format),
    maxTokens: max_completion_tokens ?? max_tokens,
    templateVariables: input.chat_template_kwargs,
    thinking: { effort: input.reasoning_effort, maxTokens: input.thinking_budget },
  };
}

const toolsOf = ({ tools = [], tool_choice }: Input) => requestedTools(tools, tool_choice, 'chat');

/** The deprecated `functions` and `function_call`, as tools. */
function legacyTools({ functions = [], function_call: choice, tools }: Input): ReturnType<typeof toolsOf> {
  if (tools) throw new RequestError('`functions` is the older name of `tools`: use one of them.', 'functions');
  const requested = functions.map((members) => ({ type: 'function', function: members }));
  const requestedChoice = typeof choice === 'object' ? { type: 'function', function: choice } : choice;
  try {
    return requestedTools(requested, requestedChoice, 'chat');
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    const renamed = (text: string) =>
      text
        .replaceAll(/tools\[(\d+)\]\.function/g, 'functions[$1]')
        .replaceAll('tool_choice', 'function_call')
        .replaceAll('`tools`', '`functions`');
    throw new RequestError(renamed(error.message), error.param && renamed(error.param), error.code);
  }
}

async function constraintOf(model: string, format: Input['response_format']): Promise<Constraint | undefined> {
  if (format?.type === 'json_object') return jsonSchema({ type: 'object' });
  if (format?.type !== 'json_schema') return undefined;
  const { json_schema: named } = format;
  if (!named) throw new RequestError('`json_schema` is missing.', 'response_format.json_schema');
  return schemaConstraint(model, named.schema, `the schema "${named.name}"`, 'response_format.json_schema.schema');
}

/** Converts messages to the form of chat templates. */
function templateMessages(messages: readonly Message[]): RequestMessage[] {
  /** Id of the last `function_call`, which has none itself. */
  let functionCallId = 'function_call';
  return messages.map(({ role, content, refusal, tool_calls, tool_call_id, function_call, name, ...message }, i) => {
    const at = `messages[${i}]`;
    const shown = contentOf(content, `${at}.content`, role) || (refusal ?? '');
    const thought = role === 'assistant' && (message.reasoning_content || message.reasoning);
    if (role === 'function')
      return { role: 'tool', content: shown, name: name ?? '', tool_call_id: templateCallId(functionCallId) };
    if (function_call) functionCallId = `function_call_${i}`;
    const calls = [
      ...(tool_calls ?? []).map((call, c) => earlierCall(call, `${at}.tool_calls[${c}]`)),
      ...(function_call ? [{ id: functionCallId, ...function_call }] : []),
    ];
    return {
      role: role === 'developer' ? 'system' : role,
      content: shown,
      ...(name && { name }),
      ...(thought && { thought }),
      ...(calls.length > 0 && { tool_calls: calls.map(toolCallOf) }),
      ...(tool_call_id && { tool_call_id: templateCallId(tool_call_id) }),
    };
  });
}

function earlierCall({ id, function: called, custom }: MessageCall, at: string): EarlierCall {
  if (called) return { id, ...called };
  if (custom) return { id, name: custom.name, arguments: { [TEXT_PARAMETER]: custom.input } };
  throw new RequestError(`${at}.function is missing.`, `${at}.function`);
}

function deltaOf(part: Part, callId: (index: number) => string): object | undefined {
  if (part.kind === 'text') return { content: part.text };
  if (part.kind === 'thought') return { reasoning_content: part.text };
  if (part.kind !== 'call' && part.kind !== 'arguments') return undefined;
  const { index } = part;
  if (part.kind === 'call') {
    const call = callOf({ ...part, arguments: '' });
    return { tool_calls: [{ index, id: callId(index), ...call }] };
  }
  return {
    tool_calls: [
      { index, ...(part.isCustom ? { custom: { input: part.text } } : { function: { arguments: part.text } }) },
    ],
  };
}

/** The delta of an answer to the deprecated `functions`. */
function legacyDeltaOf(part: Part): object | undefined {
  if (part.kind === 'call') return { function_call: { name: part.name, arguments: '' } };
  if (part.kind === 'arguments') return { function_call: { arguments: part.text } };
  if (part.kind === 'thought') return { reasoning_content: part.text };
  return part.kind === 'text' ? { content: part.text } : undefined;
}

/** The calls of a message. */
function callsOf(calls: readonly Call[], form: keyof typeof FINISH_REASONS, callId: (index: number) => string): object {
  const [{ name = '', arguments: text = '' } = {}] = calls;
  if (form === 'function_call') return { function_call: { name, arguments: text } };
  return { tool_calls: calls.map((call, index) => ({ id: callId(index), ...callOf(call) })) };
}

const callOf = ({ name, arguments: text, isCustom }: Call) =>
  isCustom
    ? { type: 'custom', custom: { name, input: text } }
    : { type: 'function', function: { name, arguments: text } };
