import { type Constraint, type Effort, jsonSchema, sendJson } from '@pie/inferlet';
import { answer, begin, type Conversation } from '../openai-shared/chat.ts';
import { cachedTokens } from '../openai-shared/generate.ts';
import { TokenTexts } from '../openai-shared/logprobs.ts';
import { RequestError, refuseUnsupported, serve, stamp } from '../openai-shared/request.ts';
import type { SamplingInput } from '../openai-shared/sampling.ts';
import { type RequestedChoice, type RequestedTool, requestedTools } from '../openai-shared/tool-request.ts';
import { callConstraints, reportOf, schemaConstraint } from '../openai-shared/tools.ts';
import { type Item, messagesOf } from './items.ts';
import { Output } from './output.ts';

interface Format {
  readonly type: 'text' | 'json_object' | 'json_schema';
  readonly name?: string;
  readonly schema?: object;
}

/** The input that the schema in pie.json accepts. */
interface Input extends SamplingInput {
  readonly model: string;
  readonly input?: string | readonly Item[];
  /** The items of earlier turns. The route fills them in for a `previous_response_id`. */
  readonly previous_items?: readonly Item[];
  readonly instructions?: string | readonly Item[];
  readonly tools?: readonly RequestedTool[];
  readonly tool_choice?: RequestedChoice;
  readonly parallel_tool_calls?: boolean;
  readonly max_tool_calls?: number;
  readonly text?: { readonly format?: Format; readonly verbosity?: string };
  readonly max_output_tokens?: number;
  readonly include?: readonly string[];
  readonly top_logprobs?: number;
  readonly chat_template_kwargs?: Readonly<Record<string, unknown>>;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly user?: string;
  readonly prompt_cache_key?: string;
  readonly safety_identifier?: string;
  readonly reasoning?: {
    readonly effort?: Effort | null;
    readonly summary?: string | null;
    readonly generate_summary?: string | null;
  };
  readonly thinking_budget?: number;
  readonly truncation?: 'auto' | 'disabled';
  readonly previous_response_id?: string;
  readonly store?: boolean;
  readonly stream?: boolean;
}

/** Parameters of OpenAI's API for what the platform does not do. */
const UNSUPPORTED = {
  background:
    'a response is made while its client waits. Leave it out, or invoke the function openai-responses with `Prefer: respond-async`.',
  conversation:
    'conversations are not stored. Leave it out, and send `previous_response_id` or the whole conversation.',
  context_management: 'conversations are not compacted. Leave it out; `truncation: "auto"` drops the oldest turns.',
  moderation: 'there is no moderation. Leave it out.',
  prompt: 'prompts are not stored. Leave it out, and send `instructions` and `input`.',
};

/**
 * What the platform keeps of a response that may be stored. The route `/v1/responses` answers with `response`, and finds in the result what
 * `item_reference` and `previous_response_id` refer to.
 */
interface Stored {
  readonly response: object;
  /** The request's own items; absent when they are too long to be kept. */
  readonly input?: readonly Item[];
}

/** Maximum characters of the items that are kept with a response. */
const MAX_KEPT_INPUT = 256 * 1024;
/** Maximum characters of a kept response: it repeats the request's tools and instructions, and the gateway reads at most 1,048,576 characters with the items. */
const MAX_KEPT_RESPONSE = 704 * 1024;

/** Maximum characters of what a response repeats of its request: an event of a stream holds all of it, and a message has at most 1 MiB. */
const MAX_ECHOED = 256 * 1024;

/** `POST /v1/responses`. */
export const run = serve(async (input: Input, invocation) => {
  const { model, stream = false, include = [], top_logprobs: topLogprobs = 0 } = input;
  refuseUnsupported(input, UNSUPPORTED);
  const conversation = await conversationOf(input);
  using ctx = await begin(conversation, 'input');
  const promptTokens = ctx.length;
  if (stream && conversation.calls.dropped.length > 0) await sendJson(reportOf(conversation.calls));
  const { id, created, ...head } = stamp('resp_', invocation, model);
  const base = { id, object: 'response', created_at: created, ...head, ...shortEcho(input) };
  // Set if the client asks for log-probabilities.
  const tokenTexts = include.includes('message.output_text.logprobs') ? new TokenTexts(model) : undefined;

  // The gateway adds each event's `sequence_number`: this function cannot count the events of piped text, which the platform sends by itself.
  const send = async (event: object) => {
    if (stream) await sendJson(event);
  };
  // Some clients read thoughts as summaries only, which they ask for.
  const showsSummary = Boolean(input.reasoning?.summary ?? input.reasoning?.generate_summary);
  const output = new Output(id, tokenTexts, showsSummary ? 'summary' : 'content', send);
  const begun = { ...base, ...outcome('in_progress') };
  // Either the platform or `sendStart` sends these events, once and before all others.
  const unsentStart = ['response.created', 'response.in_progress'].map((type) => ({ type, response: begun }));
  // The platform sends the answer's first text in this frame, after the events that precede it. Such piped text has no log-probabilities.
  const frame = stream && !tokenTexts ? () => output.textFrame(unsentStart) : undefined;
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
      output_tokens_details: { reasoning_tokens: answered.thoughtTokens },
      total_tokens: promptTokens + answered.tokens,
    },
  };
  const report = reportOf(conversation.calls);
  if (stream) await send({ type: cut ? 'response.incomplete' : 'response.completed', response });
  if (input.store === false) return stream ? null : { ...response, ...report };
  return { ...storedOf(response, itemsOf(input.input)), ...report };
});

/** What is kept of a response; the response alone, which the gateway does not find again, if it is too long to be kept. */
function storedOf(response: object, input: readonly Item[]): Stored | object {
  if (JSON.stringify(response).length > MAX_KEPT_RESPONSE) return response;
  return JSON.stringify(input).length > MAX_KEPT_INPUT ? { response } : { response, input };
}

/** The request's fields that the response repeats. */
const echoed = (input: Input) => ({
  background: false,
  instructions: input.instructions ?? null,
  max_output_tokens: input.max_output_tokens ?? null,
  max_tool_calls: input.max_tool_calls ?? null,
  metadata: input.metadata ?? {},
  parallel_tool_calls: input.parallel_tool_calls ?? true,
  previous_response_id: input.previous_response_id ?? null,
  prompt_cache_key: input.prompt_cache_key ?? null,
  reasoning: { effort: null, summary: null, ...input.reasoning },
  safety_identifier: input.safety_identifier ?? null,
  service_tier: 'default',
  store: input.store ?? true,
  temperature: input.temperature ?? 1,
  text: { format: input.text?.format ?? { type: 'text' }, verbosity: input.text?.verbosity ?? 'medium' },
  tool_choice: input.tool_choice ?? 'auto',
  tools: (input.tools ?? []).map((tool) =>
    tool.type === 'function' ? { strict: false, parameters: null, ...tool } : tool,
  ),
  top_logprobs: input.top_logprobs ?? 0,
  top_p: input.top_p ?? 1,
  truncation: input.truncation ?? 'disabled',
  user: input.user ?? null,
});

/** What the response repeats of its request. Of a request that is too long, it leaves out tools, instructions and the format of the text, in this order. */
function shortEcho(input: Input): ReturnType<typeof echoed> {
  let echo = echoed(input);
  const text = { ...echo.text, format: { type: 'text' as const } };
  for (const shorter of [{ tools: [] }, { instructions: null }, { text }, { tool_choice: 'auto' as const }])
    if (JSON.stringify(echo).length > MAX_ECHOED) echo = { ...echo, ...shorter };
  return echo;
}

/** The response's fields for its status. */
const outcome = (status: string, incomplete_details: object | null = null) => ({
  status,
  error: null,
  incomplete_details,
  output: [] as readonly object[],
  usage: null,
});

async function conversationOf(input: Input): Promise<Conversation> {
  const { model, instructions = [], previous_items: previous = [], truncation } = input;
  const { tools, toolChoice } = requestedTools(input.tools ?? [], input.tool_choice, 'responses');
  const items = itemsOf(input.input);
  if (items.length === 0 && previous.length === 0 && instructions.length === 0)
    throw new RequestError('`input` is missing: send a text or items.', 'input');
  const guidance =
    typeof instructions === 'string' ? [{ role: 'system' as const, content: instructions }] : instructions;
  return {
    model,
    messages: [
      ...messagesOf(guidance, 'instructions'),
      // The route has put them in the place of this parameter.
      ...messagesOf(previous, 'previous_response_id.items'),
      ...messagesOf(items, 'input'),
    ],
    tools,
    toolChoice,
    calls: await callConstraints(model, tools, toolChoice),
    truncates: truncation === 'auto',
    parallelCalls: input.parallel_tool_calls ?? true,
    constraint: await constraintOf(model, input.text?.format),
    maxTokens: input.max_output_tokens,
    templateVariables: input.chat_template_kwargs,
    thinking: { effort: input.reasoning?.effort ?? undefined, maxTokens: input.thinking_budget },
  };
}

const itemsOf = (input: Input['input'] = []): readonly Item[] =>
  typeof input === 'string' ? [{ role: 'user', content: input }] : input;

async function constraintOf(model: string, format: Format | undefined): Promise<Constraint | undefined> {
  if (format?.type === 'json_object') return jsonSchema({ type: 'object' });
  if (format?.type !== 'json_schema') return undefined;
  const { schema, name = '' } = format;
  if (!schema) throw new RequestError('`schema` is missing.', 'text.format.schema');
  return schemaConstraint(model, schema, `the schema "${name}"`, 'text.format.schema');
}
