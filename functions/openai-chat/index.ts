import { type ChatMessage, type Constraint, type Context, jsonSchema, sendJson } from '@pie/inferlet';
import { type Answer, answer, begin, type Conversation, type Part } from '../openai-shared/chat.ts';
import { choicesOf, frameAround, stopsOf } from '../openai-shared/generate.ts';
import { chatLogprobs, TokenTexts } from '../openai-shared/logprobs.ts';
import { type ContentPart, templateCallId, textOf, toolCallsOf } from '../openai-shared/messages.ts';
import { RequestError, serve, stamp } from '../openai-shared/request.ts';
import type { SamplingInput } from '../openai-shared/sampling.ts';
import { checkTools, schemaConstraint, type Tool } from '../openai-shared/tools.ts';
import { usageOf } from '../openai-shared/usage.ts';

/** A message in the client's form. */
interface Message {
  readonly role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  readonly content?: string | readonly ContentPart[] | null;
  readonly tool_calls?: readonly { id: string; function: { name: string; arguments: string } }[] | null;
  readonly tool_call_id?: string;
  readonly name?: string | null;
}

/** The input that the schema in pie.json accepts. */
interface Input extends SamplingInput {
  readonly model: string;
  readonly messages: readonly Message[];
  readonly tools?: readonly { readonly function: Tool }[];
  readonly tool_choice?: 'none' | 'auto' | 'required' | { readonly function: { readonly name: string } };
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
  readonly stream?: boolean;
  readonly stream_options?: { readonly include_usage?: boolean };
}

/** `POST /v1/chat/completions`. */
export const run = serve(async (input: Input, invocation) => {
  const { model, n = 1, logprobs = false, top_logprobs, stream = false, stream_options } = input;
  if (top_logprobs !== undefined && !logprobs) {
    throw new RequestError('`top_logprobs` needs `logprobs` to be true.', 'top_logprobs');
  }
  const conversation = await conversationOf(input);
  using ctx = begin(conversation, 'messages');
  const promptTokens = ctx.length;
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
      const delta = deltaOf(part, (call) => callId(index, call));
      const logs = part.kind === 'text' && texts ? { content: chatLogprobs(texts, part.logs), refusal: null } : null;
      if (delta) await send(delta, { logprobs: logs });
    };
    const stop = stopsOf(input.stop);
    const frame =
      stream && !texts ? frameAround((content) => deltaChunk({ content }), [deltaChunk(opening)]) : undefined;
    const options = { sampling: input, choice: index, stop, topLogprobs: texts && (top_logprobs ?? 0), frame };
    const answered = await answer(fork, conversation, options, emit);
    if (!openingSent) await send(opening);
    await send({}, { finish_reason: answered.finish });
    return answered;
  };
  const answers = await Promise.all((await choicesOf(ctx, n)).map(answerChoice));

  const usage = usageOf({ prompt: promptTokens, completion: answers.reduce((sum, { tokens }) => sum + tokens, 0) });
  if (stream) {
    if (includeUsage) await sendJson(chunkOf([], usage));
    return null;
  }
  const choices = answers.map((answered, index) => ({
    index,
    message: messageOf(answered, (call) => callId(index, call)),
    logprobs: texts ? { content: chatLogprobs(texts, answered.logs), refusal: null } : null,
    finish_reason: answered.finish,
  }));
  return { ...head, object: 'chat.completion', choices, usage };
});

async function conversationOf(input: Input): Promise<Conversation> {
  const { model, tools = [], tool_choice: choice, max_completion_tokens, max_tokens } = input;
  const functions = tools.map((tool) => tool.function);
  checkTools(functions);
  return {
    model,
    messages: input.messages.map(templateMessage),
    tools: functions,
    toolChoice: typeof choice === 'object' ? choice.function : choice,
    parallelCalls: input.parallel_tool_calls ?? true,
    constraint: await constraintOf(model, input.response_format),
    maxTokens: max_completion_tokens ?? max_tokens,
    templateVariables: input.chat_template_kwargs,
  };
}

async function constraintOf(model: string, format: Input['response_format']): Promise<Constraint | undefined> {
  if (format?.type === 'json_object') return jsonSchema({ type: 'object' });
  if (format?.type !== 'json_schema') return undefined;
  const { json_schema: named } = format;
  if (!named) throw new RequestError('`json_schema` is missing.', 'response_format.json_schema');
  return schemaConstraint(model, named.schema, `the schema "${named.name}"`, 'response_format.json_schema.schema');
}

/** Converts a message to the form of chat templates. */
function templateMessage({ role, content, tool_calls, tool_call_id, name }: Message, i: number): ChatMessage {
  return {
    role: role === 'developer' ? 'system' : role,
    content: textOf(content, `messages[${i}].content`),
    ...(name && { name }),
    ...(tool_calls && { tool_calls: toolCallsOf(tool_calls) }),
    ...(tool_call_id !== undefined && { tool_call_id: templateCallId(tool_call_id) }),
  };
}

function deltaOf(part: Part, callId: (index: number) => string): object | undefined {
  switch (part.kind) {
    case 'text':
      return { content: part.text };
    case 'call': {
      const { index, name } = part;
      return { tool_calls: [{ index, id: callId(index), type: 'function', function: { name, arguments: '' } }] };
    }
    case 'arguments':
      return { tool_calls: [{ index: part.index, function: { arguments: part.text } }] };
    case 'called':
    case 'piped':
      return undefined;
  }
}

function messageOf({ text, calls }: Answer, callId: (index: number) => string): object {
  const tool_calls = calls.map((call, index) => ({ id: callId(index), type: 'function', function: call }));
  return {
    role: 'assistant',
    content: text === '' && calls.length > 0 ? null : text,
    refusal: null,
    ...(calls.length > 0 && { tool_calls }),
  };
}
