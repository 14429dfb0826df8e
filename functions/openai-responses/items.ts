import type { RequestContent, RequestMessage } from '../openai-shared/images.ts';
import {
  type ContentPart,
  contentOf,
  type EarlierCall,
  templateCallId,
  toolCallOf,
} from '../openai-shared/messages.ts';
import { RequestError } from '../openai-shared/request.ts';
import { TEXT_PARAMETER } from '../openai-shared/tools.ts';

/** An item of the conversation in the client's form. The members depend on the type; a message may leave the type out. */
export interface Item {
  readonly type?: string;
  readonly role?: 'system' | 'developer' | 'user' | 'assistant';
  readonly content?: string | readonly ContentPart[];
  readonly id?: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly input?: string;
  /** The result of a call: a text, parts, or what a hosted tool reports. */
  readonly output?: unknown;
  readonly error?: unknown;
  /** A thought, if there is no `content`. */
  readonly summary?: readonly ContentPart[];
  /** What a call of a hosted tool asks for: `action` of a shell or computer, `operation` of a patch. */
  readonly action?: object;
  readonly operation?: object;
}

const ROLES: ReadonlySet<string> = new Set(['system', 'developer', 'user', 'assistant']);

/** Items without a text that a chat template could show: reports of tools that OpenAI ran. */
const PASSED_OVER =
  /^(web_search_call|file_search_call|image_generation_call|code_interpreter_call|mcp_list_tools|mcp_approval_(request|response)|tool_search_(call|output)|additional_tools|program|program_output)$/;

/** Calls of the client's own tools that OpenAI defines, such as `local_shell_call`, and their results. */
const DEFINED_CALL = /^(local_shell|shell|apply_patch|computer)_call$/;
const DEFINED_OUTPUT = /^(local_shell|shell|apply_patch|computer)_call_output$/;

/**
 * Converts the items of a conversation to the form of chat templates.
 *
 * @param at place of the items in the request
 * @throws RequestError for an item that cannot be read, with its place and its type
 */
export function messagesOf(items: readonly Item[], at: string): RequestMessage[] {
  return turnsOf(items.flatMap((item, i) => messageOf(item, `${at}[${i}]`)));
}

/**
 * Adds each call to the assistant's message before it, and each thought to the message or call behind it: thoughts, texts and calls are items of their
 * own here, but one turn in chat templates. A thought behind which the assistant says nothing is left out.
 */
function turnsOf(messages: readonly RequestMessage[]): RequestMessage[] {
  const turns: RequestMessage[] = [];
  let thought: string | undefined;
  for (const message of messages) {
    if (message.thought !== undefined) {
      thought = message.thought;
      continue;
    }
    const last = turns.at(-1);
    const calls = message.tool_calls ?? [];
    const continues = calls.length > 0 && last?.role === 'assistant' && thought === undefined;
    if (continues) turns[turns.length - 1] = { ...last, tool_calls: [...(last.tool_calls ?? []), ...calls] };
    else turns.push(thought !== undefined && message.role === 'assistant' ? { ...message, thought } : message);
    thought = undefined;
  }
  return turns;
}

/** The messages for one item: none for an item that is passed over, two for a call with its result, one with a thought alone for a thought. */
function messageOf(item: Item, at: string): RequestMessage[] {
  const { type = 'message' } = item;
  const need = (member: 'call_id' | 'name' | 'arguments' | 'input' | 'role' | 'id'): string => {
    const value: unknown = item[member];
    if (typeof value === 'string') return value;
    const fault = value === undefined ? 'is missing' : 'must be a text';
    throw new RequestError(`${at}.${member} ${fault}.`, `${at}.${member}`);
  };
  if (PASSED_OVER.test(type)) return [];
  if (type === 'reasoning') {
    const text = thoughtIn(item.content) || thoughtIn(item.summary);
    return text === '' ? [] : [{ role: 'assistant', content: '', thought: text }];
  }
  if (type === 'message') {
    const role = need('role');
    if (!ROLES.has(role))
      throw new RequestError(
        `${at}.role is "${role.slice(0, 80)}"; the roles are ${[...ROLES].join(', ')}.`,
        `${at}.role`,
      );
    return [{ role: role === 'developer' ? 'system' : role, content: contentOf(item.content, `${at}.content`, role) }];
  }
  if (type === 'function_call')
    return [calling({ id: need('call_id'), name: need('name'), arguments: need('arguments') })];
  if (type === 'custom_tool_call')
    return [calling({ id: need('call_id'), name: need('name'), arguments: { [TEXT_PARAMETER]: need('input') } })];
  if (type === 'function_call_output' || type === 'custom_tool_call_output')
    return [resultOf(need('call_id'), outputContent(item.output, `${at}.output`))];
  if (DEFINED_CALL.test(type)) {
    const asked = JSON.stringify(item.action ?? item.operation ?? {});
    return [calling({ id: item.call_id ?? item.id ?? type, name: type.replace(/_call$/, ''), arguments: asked })];
  }
  if (DEFINED_OUTPUT.test(type)) {
    const text = type.startsWith('computer') ? '' : outputContent(item.output, `${at}.output`);
    return [resultOf(item.call_id ?? item.id ?? type.replace(/_output$/, ''), text)];
  }
  if (type === 'mcp_call') {
    const id = item.id ?? at;
    const text = outputContent(item.output ?? item.error ?? '', `${at}.output`);
    return [calling({ id, name: need('name'), arguments: item.arguments ?? '{}' }), resultOf(id, text)];
  }
  if (type === 'item_reference')
    throw new RequestError(
      `${at} is an item_reference to "${need('id')}", which only the route /v1/responses resolves: send the item itself.`,
      `${at}.id`,
    );
  throw new RequestError(
    `${at} has the type "${type}", which is not known here: leave the item out, or send its text as a message.`,
    `${at}.type`,
  );
}

/** The text of a thought: the texts of its parts. Anything else in its place is passed over. */
function thoughtIn(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.flatMap((part) => (typeof part?.text === 'string' ? [part.text] : [])).join('\n\n');
}

const calling = (call: EarlierCall): RequestMessage => ({
  role: 'assistant',
  content: '',
  tool_calls: [toolCallOf(call)],
});

const resultOf = (callId: string, content: RequestContent): RequestMessage => ({
  role: 'tool',
  content,
  tool_call_id: templateCallId(callId),
});

/** The content of a call's result. A list of content parts has their texts and images; any other value, such as the reports of a shell, is shown as JSON. */
function outputContent(output: unknown, at: string): RequestContent {
  if (typeof output === 'string') return output;
  if (output === undefined) return '';
  const isContent =
    Array.isArray(output) && output.every((part) => typeof part === 'object' && part !== null && 'type' in part);
  return isContent ? contentOf(output as ContentPart[], at) : JSON.stringify(output);
}
