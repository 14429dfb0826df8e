import type { ToolCall } from '@pie/inferlet';
import { joined, partsOf, type RequestedImage, type RequestMessage } from '../openai-shared/images.ts';
import { templateCallId } from '../openai-shared/messages.ts';
import { RequestError } from '../openai-shared/request.ts';

/** A content block in the client's form. Its members depend on the type. */
export interface Block {
  readonly type: string;
  readonly text?: string;
  /** Of a `thinking` block. */
  readonly thinking?: string;
  /** Of a `tool_use` block. */
  readonly id?: string;
  readonly name?: string;
  readonly input?: unknown;
  /** Of a `tool_result` block. */
  readonly tool_use_id?: string;
  readonly is_error?: boolean;
  /** Of a `tool_result` or a `search_result` block. */
  readonly content?: string | readonly Block[];
  /** Of a `search_result`, a `document` or an `image` block. */
  readonly title?: string;
  readonly source?:
    | string
    | {
        readonly type?: string;
        readonly data?: string;
        readonly media_type?: string;
        readonly url?: string;
      };
}

export type Content = string | readonly Block[];

/** A turn in the client's form. */
export interface Turn {
  readonly role: 'user' | 'assistant' | 'system';
  readonly content: Content;
}

/** A conversation in the form of chat templates. */
export interface Told {
  readonly messages: readonly RequestMessage[];
  /** The beginning of the answer, when the last turn is the assistant's; otherwise empty. */
  readonly prefill: string;
}

/** Blocks without a text that a chat template could show, such as calls and results of tools that Anthropic runs, and encrypted thoughts. */
const PASSED_OVER = /^(redacted_thinking|fallback|server_tool_use|mcp_tool_use|mcp_tool_listing|\w+_tool_result)$/;

/** What helps a client whose request has a block that no model here can read. */
const REMEDIES: Readonly<Record<string, string>> = {
  image: 'only turns and tool results of the user have images. Move the block there',
  document: 'only documents whose `source` has the type "text" can be read. Send the text of the document',
  tool_use: 'only turns of the assistant have calls. Move the block there',
  tool_result: 'only turns of the user have results of calls. Move the block there',
  container_upload: 'there are no containers. Send the text of the file in a text block',
};

/**
 * Converts a request's `system` and `messages` to the form of chat templates.
 *
 * @throws RequestError for a block that cannot be read, with its place and its type
 */
export function told(system: Content | undefined, turns: readonly Turn[]): Told {
  const messages: RequestMessage[] = [];
  const systemText = system === undefined ? '' : textOf(system, 'system');
  if (systemText !== '') messages.push({ role: 'system', content: systemText });
  /** Names of the called tools, by the id of the call. */
  const names = new Map<string, string>();
  for (const [i, { role, content }] of turns.entries()) {
    const at = `messages[${i}].content`;
    const blocks = blocksOf(content, at);
    const converted =
      role === 'assistant'
        ? [assistantMessage(blocks, at, names)]
        : role === 'user'
          ? userMessages(blocks, at, names)
          : [{ role, content: textOf(content, at) }];
    for (const message of converted) add(messages, message);
  }
  const last = messages.at(-1);
  if (last?.role !== 'assistant') return { messages, prefill: '' };
  const at = `messages[${turns.length - 1}].content`;
  if (last.tool_calls)
    throw new RequestError(
      `${at} ends the conversation with a tool_use block: add a user turn with its tool_result.`,
      at,
    );
  // A trailing space would separate the answer's first token from its own space.
  return { messages: messages.slice(0, -1), prefill: typeof last.content === 'string' ? last.content.trimEnd() : '' };
}

/** Adds a message. Consecutive turns of the user or of the assistant become one. */
function add(messages: RequestMessage[], message: RequestMessage): void {
  const last = messages.at(-1);
  const { role, content } = message;
  if (last?.role !== role || (role !== 'user' && role !== 'assistant')) {
    messages.push(message);
    return;
  }
  const calls = [...(last.tool_calls ?? []), ...(message.tool_calls ?? [])];
  messages[messages.length - 1] = {
    ...last,
    ...message,
    content: joined([...partsOf(last.content), ...partsOf(content)], BETWEEN_TEXTS),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

/** What separates text blocks and turns that become one message. */
const BETWEEN_TEXTS = '\n';

/** The messages of a user's turn: results of calls are messages of their own in chat templates. */
function userMessages(blocks: readonly Block[], at: string, names: ReadonlyMap<string, string>): RequestMessage[] {
  const messages: RequestMessage[] = [];
  for (const [i, block] of blocks.entries()) {
    const place = `${at}[${i}]`;
    if (block.type === 'tool_result') messages.push(resultMessage(block, place, names));
    else if (!PASSED_OVER.test(block.type)) {
      const shown = block.type === 'image' ? imageOf(block, place) : blockText(block, place);
      add(messages, { role: 'user', content: joined([shown], BETWEEN_TEXTS) });
    }
  }
  return messages;
}

function resultMessage(block: Block, at: string, names: ReadonlyMap<string, string>): RequestMessage {
  const { content = '', is_error = false } = block;
  const id = need(block, 'tool_use_id', at);
  const name = names.get(id);
  if (name === undefined)
    throw new RequestError(
      `${at}.tool_use_id is "${id}", but no earlier turn has a tool_use block with this id: send the whole conversation.`,
      `${at}.tool_use_id`,
    );
  const blocks = blocksOf(content, `${at}.content`);
  const shown = blocks.map((each, i) => {
    const place = `${at}.content[${i}]`;
    return each.type === 'image' ? imageOf(each, place) : blockText(each, place);
  });
  const [first = ''] = shown;
  // Chat templates have no mark for a call that failed.
  const isMarked = !is_error || (typeof first === 'string' && /^error/i.test(first));
  if (!isMarked) shown.splice(0, 1, ...(typeof first === 'string' ? [`Error: ${first}`] : ['Error:', first]));
  return { role: 'tool', content: joined(shown, BETWEEN_TEXTS), name, tool_call_id: templateCallId(id) };
}

const AS_SOURCE = 'send a PNG or JPEG as a `source` of the type base64, with its media_type and its data';

/** An image block. */
function imageOf({ type: itemType, source }: Block, at: string): RequestedImage {
  const image = { type: 'image', at, itemType, remedy: AS_SOURCE } as const;
  if (typeof source !== 'object')
    return {
      ...image,
      param: `${at}.source`,
      source: { kind: 'unserved', remedy: `it has no \`source\`: ${AS_SOURCE}` },
    };
  const { data, url, ...described } = source;
  const [type, mediaType] = [String(described.type ?? ''), String(described.media_type ?? '')];
  if (type === 'base64') return { ...image, param: `${at}.source.data`, source: { kind: 'base64', mediaType, data } };
  if (type === 'url') return { ...image, param: `${at}.source.url`, source: { kind: 'url', url } };
  const fault = `its \`source\` has the type "${type.slice(0, 80)}": only base64 and url are served here`;
  return { ...image, param: `${at}.source.type`, source: { kind: 'unserved', remedy: fault } };
}

function assistantMessage(blocks: readonly Block[], at: string, names: Map<string, string>): RequestMessage {
  let content = '';
  let thoughts = '';
  const calls: ToolCall[] = [];
  for (const [i, block] of blocks.entries()) {
    const place = `${at}[${i}]`;
    if (block.type === 'thinking') thoughts += block.thinking ?? '';
    else if (block.type === 'tool_use') calls.push(callOf(block, place, names));
    else if (!PASSED_OVER.test(block.type)) content += blockText(block, place);
  }
  return {
    role: 'assistant',
    content,
    ...(thoughts !== '' && { thought: thoughts }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

function callOf(block: Block, at: string, names: Map<string, string>): ToolCall {
  const id = need(block, 'id', at);
  const name = need(block, 'name', at);
  const { input = {} } = block;
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw new RequestError(`${at}.input is not an object: send the input of the call.`, `${at}.input`);
  names.set(id, name);
  return { id: templateCallId(id), type: 'function', function: { name, arguments: { ...input } } };
}

/** The text of a content. `at` is its place in the request. */
function textOf(content: Content, at: string): string {
  return blocksOf(content, at)
    .map((block, i) => blockText(block, `${at}[${i}]`))
    .join(BETWEEN_TEXTS);
}

/** The blocks of a content. The schema of the route's input does not describe contents within blocks. */
function blocksOf(content: Content, at: string): readonly Block[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  if (Array.isArray(content) && content.every((block) => typeof block === 'object' && block !== null)) return content;
  throw new RequestError(`${at} must be a text or a list of blocks, each an object with a type.`, at);
}

function blockText(block: Block, at: string): string {
  const { type, title = '', source, content = '' } = block;
  if (type === 'text') return need(block, 'text', at);
  if (type === 'search_result') {
    const heading = typeof source === 'string' ? [title, source] : [title];
    return [...heading, textOf(content, `${at}.content`)].filter((text) => text !== '').join('\n');
  }
  if (type === 'document' && typeof source === 'object' && source.type === 'text')
    return [title, source.data ?? ''].filter((text) => text !== '').join('\n');
  const remedy = REMEDIES[type];
  throw new RequestError(
    remedy === undefined
      ? `${at} has the type "${type}", which is not known here: leave the block out, or send its text in a text block.`
      : `${at} has the type "${type}", but ${remedy}.`,
    `${at}.type`,
  );
}

function need(block: Block, member: 'text' | 'id' | 'name' | 'tool_use_id', at: string): string {
  const value = block[member];
  if (typeof value === 'string') return value;
  throw new RequestError(`${at}.${member} is missing.`, `${at}.${member}`);
}
