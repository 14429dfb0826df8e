import { type ChatMessage, type Constraint, jsonSchema, sendJson } from '@pie/inferlet';
import { answer, begin, type Conversation } from '../openai-shared/chat.ts';
import { TokenTexts } from '../openai-shared/logprobs.ts';
import { type ContentPart, templateCallId, textOf, toolCallsOf } from '../openai-shared/messages.ts';
import { RequestError, serve, stamp } from '../openai-shared/request.ts';
import type { SamplingInput } from '../openai-shared/sampling.ts';
import { checkTools, schemaConstraint, type Tool } from '../openai-shared/tools.ts';
import { cachedTokens } from '../openai-shared/usage.ts';
import { Output } from './output.ts';

/** An item of the conversation in the client's form: a message, a call, a call's output, or another model's reasoning (ignored). */
interface Item {
  readonly type?: 'message' | 'function_call' | 'function_call_output' | 'reasoning';
  readonly role?: 'system' | 'developer' | 'user' | 'assistant';
  readonly content?: string | readonly ContentPart[];
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly output?: string | readonly ContentPart[];
}

interface Format {
  readonly type: 'text' | 'json_object' | 'json_schema';
  readonly name?: string;
  readonly schema?: object;
}

/** The input that the schema in pie.json accepts. */
interface Input extends SamplingInput {
  readonly model: string;
  readonly input: string | readonly Item[];
  readonly instructions?: string;
  readonly tools?: readonly (Tool & { readonly type: 'function' })[];
  readonly tool_choice?: 'none' | 'auto' | 'required' | { readonly type: 'function'; readonly name: string };
  readonly parallel_tool_calls?: boolean;
  readonly text?: { readonly format?: Format };
  readonly max_output_tokens?: number;
  readonly include?: readonly string[];
  readonly top_logprobs?: number;
  readonly chat_template_kwargs?: Readonly<Record<string, unknown>>;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly user?: string;
  readonly previous_response_id?: string;
  readonly stream?: boolean;
}

/** `POST /v1/responses`. */
export const run = serve(async (input: Input, invocation) => {
  const { model, stream = false, include = [], top_logprobs: topLogprobs = 0 } = input;
  if (input.previous_response_id !== undefined) {
    const text =
      'Responses are not stored: leave `previous_response_id` out and send the whole conversation as `input`.';
    throw new RequestError(text, 'previous_response_id');
  }
  const conversation = await conversationOf(input);
  using ctx = begin(conversation, 'input');
  const promptTokens = ctx.length;
  const { id, created, ...head } = stamp('resp_', invocation, model);
  const base = { id, object: 'response', created_at: created, ...head, ...echoed(input) };
  // Set if the client asks for log-probabilities.
  const tokenTexts = include.includes('message.output_text.logprobs') ? new TokenTexts(model) : undefined;

  // The gateway adds each event's `sequence_number`: this function cannot count the events of piped text, which the platform sends by itself.
  const send = async (event: object) => {
    if (stream) await sendJson(event);
  };
  const output = new Output(id, tokenTexts, send);
  const begun = { ...base, ...outcome('in_progress') };
  // Either the platform or `sendStart` sends these events, once and before all others.
  const unsentStart = ['response.created', 'response.in_progress'].map((type) => ({ type, response: begun }));
  // The platform sends the answer's first text in this frame, after the first events. Such piped text has no log-probabilities.
  const frame = stream && !tokenTexts ? output.textFrame(unsentStart) : undefined;
  const options = { sampling: input, choice: 0, stop: [], topLogprobs: tokenTexts && topLogprobs, frame };
  const sendStart = async () => {
    for (const event of unsentStart.splice(0)) await send(event);
  };
  const answered = await answer(ctx, conversation, options, async (part) => {
    // The platform has sent the frame's opening, which contains the first events.
    if (part.kind === 'piped') unsentStart.length = 0;
    await sendStart();
    await output.take(part);
  });
  // An answer without any part has not sent the first events yet.
  await sendStart();
  const cut = answered.finish === 'length';
  const items = await output.end(cut ? 'incomplete' : 'completed');
  const response = {
    ...base,
    ...outcome(cut ? 'incomplete' : 'completed', cut ? { reason: 'max_output_tokens' } : null),
    output: items,
    usage: {
      input_tokens: promptTokens,
      input_tokens_details: { cached_tokens: Math.min(promptTokens, cachedTokens()) },
      output_tokens: answered.tokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: promptTokens + answered.tokens,
    },
  };
  if (!stream) return response;
  await send({ type: cut ? 'response.incomplete' : 'response.completed', response });
  return null;
});

/** The request's fields that the response repeats. */
const echoed = (input: Input) => ({
  instructions: input.instructions ?? null,
  max_output_tokens: input.max_output_tokens ?? null,
  metadata: input.metadata ?? {},
  parallel_tool_calls: input.parallel_tool_calls ?? true,
  previous_response_id: null,
  store: false,
  temperature: input.temperature ?? 1,
  text: { format: input.text?.format ?? { type: 'text' } },
  tool_choice: input.tool_choice ?? 'auto',
  tools: (input.tools ?? []).map((tool) => ({ strict: false, parameters: null, ...tool })),
  top_logprobs: input.top_logprobs ?? 0,
  top_p: input.top_p ?? 1,
  truncation: 'disabled',
  user: input.user ?? null,
});

/** The response's fields for its status. */
const outcome = (status: string, incomplete_details: object | null = null) => ({
  status,
  error: null,
  incomplete_details,
  output: [] as readonly object[],
  usage: null,
});

async function conversationOf(input: Input): Promise<Conversation> {
  const { model, tools = [], instructions, tool_choice: toolChoice } = input;
  checkTools(tools);
  const items: readonly Item[] =
    typeof input.input === 'string' ? [{ role: 'user', content: input.input }] : input.input;
  const spoken = turnsOf(items.flatMap((item, i) => messageOf(item, `input[${i}]`)));
  return {
    model,
    messages: instructions === undefined ? spoken : [{ role: 'system', content: instructions }, ...spoken],
    tools: tools.map(({ name, description, parameters, strict }) => ({ name, description, parameters, strict })),
    toolChoice,
    parallelCalls: input.parallel_tool_calls ?? true,
    constraint: await constraintOf(model, input.text?.format),
    maxTokens: input.max_output_tokens,
    templateVariables: input.chat_template_kwargs,
  };
}

async function constraintOf(model: string, format: Format | undefined): Promise<Constraint | undefined> {
  if (format?.type === 'json_object') return jsonSchema({ type: 'object' });
  if (format?.type !== 'json_schema') return undefined;
  const { schema, name = '' } = format;
  if (!schema) throw new RequestError('`schema` is missing.', 'text.format.schema');
  return schemaConstraint(model, schema, `the schema "${name}"`, 'text.format.schema');
}

/** Adds each call to the assistant's message before it: texts and calls are items of their own here, but one turn in chat templates. */
function turnsOf(messages: readonly ChatMessage[]): ChatMessage[] {
  const turns: ChatMessage[] = [];
  for (const message of messages) {
    const last = turns.at(-1);
    const calls = message.tool_calls ?? [];
    if (calls.length === 0 || last?.role !== 'assistant') turns.push(message);
    else turns[turns.length - 1] = { ...last, tool_calls: [...(last.tool_calls ?? []), ...calls] };
  }
  return turns;
}

/** Converts an item to the form of chat templates: one message, or none for reasoning. `at` is the item's place in the request. */
function messageOf(item: Item, at: string): ChatMessage[] {
  const need = (member: 'call_id' | 'name' | 'arguments' | 'role'): string => {
    const value = item[member];
    if (value !== undefined) return value;
    throw new RequestError(`\`${member}\` is missing.`, `${at}.${member}`);
  };
  if (item.type === 'reasoning') return [];
  if (item.type === 'function_call_output') {
    return [
      { role: 'tool', content: textOf(item.output, `${at}.output`), tool_call_id: templateCallId(need('call_id')) },
    ];
  }
  if (item.type === 'function_call') {
    const call = { id: need('call_id'), function: { name: need('name'), arguments: need('arguments') } };
    return [{ role: 'assistant', content: '', tool_calls: toolCallsOf([call]) }];
  }
  const role = need('role');
  return [{ role: role === 'developer' ? 'system' : role, content: textOf(item.content, `${at}.content`) }];
}
