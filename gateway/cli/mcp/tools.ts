import type { PieClient } from '../../client/client.ts';
import { errorFromEvent, PieError } from '../../client/errors.ts';
import { type Params, RPC_ERROR, RpcError } from './connection.ts';

/** Revisions of the protocol that this server speaks, newest first. It uses only parts that both have. 2025-03-26 would require batches. */
const PROTOCOLS = ['2025-06-18', '2024-11-05'] as const;
/** Tools on one page of the list. Each tool costs a request to the gateway for its schema. */
const PAGE = 50;
/** Schemas that are fetched at once. */
const FETCHES = 8;
/** Maximum characters of a result: the client puts the whole result into a model's context. */
const MAX_RESULT_CHARACTERS = 1 << 20;
/** Minimum time between two notes of progress, so that not every token makes a message. */
const PROGRESS_MS = 250;
/** Names without an alias or a version. The functions behind the routes of OpenAI's and Anthropic's APIs are left out: no model should write their requests. */
const OFFERED = /^(?!openai-|anthropic-)[a-z0-9-]+$/;
/** Members that hold definitions. In a wrapped schema they stay at the root, where clients look for them. */
const DEFINITIONS = ['$defs', 'definitions'] as const;
/** The start of a reference, where `wrap` inserts the schema's new place. References to definitions do not match, as definitions do not move. */
const MOVED_REFERENCE = /^#(?=$|\/)(?!\/(?:\$defs|definitions)\/)/;

export interface ToolsOptions {
  /** Functions to offer. If empty, the tools are all functions of the tenant, except those behind the routes of OpenAI's and Anthropic's APIs. */
  readonly only: readonly string[];
  /** Longest time of a call, queueing included. */
  readonly deadlineMs: number;
  readonly version: string;
  /** Tells the other side how far a call is. */
  readonly progress: (params: object) => Promise<void>;
}

interface Tool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: object;
  /** True when the function's input is not an object: the tool then has one argument, `input`. */
  readonly wrapped: boolean;
}

/**
 * A tenant's functions as tools of the Model Context Protocol (modelcontextprotocol.io, revision 2025-06-18): one tool a function, with its
 * input schema. A call invokes the function and returns its messages, or its result when it sent none.
 */
export class FunctionTools {
  readonly #client: PieClient;
  readonly #options: ToolsOptions;
  /** Tools by name, from the latest list. */
  readonly #knownTools = new Map<string, Tool>();

  constructor(client: PieClient, options: ToolsOptions) {
    this.#client = client;
    this.#options = options;
  }

  /** Answers a request. @throws RpcError for an unknown method or wrong parameters */
  async request(method: string, params: Params, signal: AbortSignal): Promise<object> {
    switch (method) {
      case 'initialize':
        return this.#initialize(params);
      case 'tools/list':
        return this.#list(params.cursor, signal);
      case 'tools/call':
        return this.#call(params, signal);
      default:
        throw new RpcError(RPC_ERROR.method, `There is no method ${method}.`);
    }
  }

  /** Names of the functions that the list offers, in order. */
  async names(signal: AbortSignal): Promise<string[]> {
    const functions = await this.#client.functions({ signal });
    const usable = functions.filter(
      ({ name, live, quarantinedAt }) => quarantinedAt === undefined && live?.length !== 0 && this.#offers(name),
    );
    return usable.map(({ name }) => name).sort();
  }

  #offers(name: string): boolean {
    const { only } = this.#options;
    return only.length > 0 ? only.includes(name) : OFFERED.test(name);
  }

  #initialize({ protocolVersion }: Params): object {
    // Revisions are dates, so they compare as text. A client of a revision between the two knows the older one.
    const agreedVersion = PROTOCOLS.find((version) => version <= String(protocolVersion)) ?? PROTOCOLS[0];
    return {
      protocolVersion: agreedVersion,
      capabilities: { tools: {} },
      serverInfo: { name: 'pie', version: this.#options.version },
    };
  }

  async #list(cursor: unknown, signal: AbortSignal): Promise<object> {
    if (cursor !== undefined && typeof cursor !== 'string')
      throw new RpcError(RPC_ERROR.params, 'The cursor is not a string.');
    const names = (await this.names(signal)).filter((name) => cursor === undefined || name > cursor);
    const page = names.slice(0, PAGE);
    const tools: object[] = [];
    for (let i = 0; i < page.length; i += FETCHES) {
      const fetchedTools = await Promise.all(page.slice(i, i + FETCHES).map((name) => this.#describe(name, signal)));
      for (const tool of fetchedTools) {
        if (tool === null) continue;
        const { wrapped: _, ...listedTool } = tool;
        tools.push(listedTool);
      }
    }
    return { tools, ...(names.length > PAGE && { nextCursor: page.at(-1) }) };
  }

  /** Fetches the description and schema of a function. Returns null when there is no such function, or no longer. */
  async #describe(name: string, signal: AbortSignal): Promise<Tool | null> {
    try {
      const { manifest } = await this.#client.function(name, { signal });
      const { description } = manifest as { description?: string };
      const schema = manifest.input ?? { type: 'object' };
      const wrapped = (schema as { type?: unknown }).type !== 'object';
      const inputSchema = wrapped ? wrap(schema) : schema;
      const tool = { name, description: description ?? name, inputSchema, wrapped };
      this.#knownTools.set(name, tool);
      return tool;
    } catch (error) {
      if (!(error instanceof PieError) || error.status !== 404) throw error;
      this.#knownTools.delete(name);
      return null;
    }
  }

  async #call(params: Params, signal: AbortSignal): Promise<object> {
    const { name } = params;
    const callArguments = params.arguments ?? {};
    if (
      typeof name !== 'string' ||
      typeof callArguments !== 'object' ||
      callArguments === null ||
      Array.isArray(callArguments)
    )
      throw new RpcError(RPC_ERROR.params, 'A call has a name and arguments, which are an object.');
    const tool = this.#offers(name) ? (this.#knownTools.get(name) ?? (await this.#describe(name, signal))) : null;
    if (tool === null) throw new RpcError(RPC_ERROR.params, `There is no tool ${name}.`);
    const input = tool.wrapped ? (callArguments as { input?: unknown }).input : callArguments;
    try {
      return await this.#invoke(name, input, progressTokenOf(params), signal);
    } catch (error) {
      if (!(error instanceof PieError)) throw error;
      // The model reads this and may try again with other arguments.
      return toolResult(`${error.code}: ${error.message}${error.hint === undefined ? '' : `\n${error.hint}`}`, {
        isError: true,
      });
    }
  }

  async #invoke(name: string, input: unknown, token: unknown, signal: AbortSignal): Promise<object> {
    const { deadlineMs } = this.#options;
    const stream = await this.#client.invoke(name, input, {
      cancelAfterMs: deadlineMs,
      cancelOnDisconnect: true,
      signal,
    });
    // A tool call sends no messages after its arguments. Closing fails when the invocation has ended; its stream then says the outcome.
    await this.#client.closeSession(stream.id, { signal }).catch(() => undefined);
    const messages = new Messages();
    let [notifiedAt, noteCount] = [performance.now(), 0];
    const notify = async (message: string) => {
      notifiedAt = performance.now();
      await this.#options.progress({ progressToken: token, progress: noteCount, message });
    };
    for await (const event of stream) {
      // A new attempt voids the messages of the earlier one, except those that came before a question.
      if (event.event === 'start') messages.clear();
      else if (event.event === 'question') {
        messages.keep();
        if (token === undefined) continue;
        const unshownText = messages.newText();
        if (unshownText !== '') await notify(unshownText);
        noteCount++;
        await notify(questionNote(stream.id, event.data));
      } else if (event.event === 'error') throw errorFromEvent(event.data, stream.id);
      else if (event.event === 'result') return outcome(messages.text, event.data.output);
      else if (event.event === 'message') {
        messages.add(event.data);
        noteCount++;
        if (token === undefined || performance.now() - notifiedAt < PROGRESS_MS) continue;
        await notify(messages.newText());
      }
    }
    throw new PieError('bad-response', 'The stream ended without an outcome.', { invocation: stream.id });
  }
}

/** Returns the schema of an object whose one property `input` has the given schema, with its references adapted to the new place. */
function wrap(schema: object): object {
  const root: Record<string, unknown> = { type: 'object', properties: {}, required: ['input'] };
  // References in a schema with `$id` are relative to that schema, so they stay valid.
  if ('$id' in schema) return { ...root, properties: { input: schema } };
  const movedSchema = moveReferences(schema) as Record<string, unknown>;
  for (const name of DEFINITIONS) {
    if (movedSchema[name] === undefined) continue;
    root[name] = movedSchema[name];
    delete movedSchema[name];
  }
  return { ...root, properties: { input: movedSchema } };
}

function moveReferences(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(moveReferences);
  if (typeof schema !== 'object' || schema === null || '$id' in schema) return schema;
  const entries = Object.entries(schema).map(([key, value]) => [
    key,
    key === '$ref' && typeof value === 'string'
      ? value.replace(MOVED_REFERENCE, '#/properties/input')
      : moveReferences(value),
  ]);
  return Object.fromEntries(entries);
}

/** The text of the messages that a function sent. It takes no more of them once it exceeds the maximum of a result. */
class Messages {
  #text = '';
  #shownLength = 0;
  #keptLength = 0;

  get text(): string {
    return this.#text;
  }

  add(
    data: { readonly text: string } | { readonly base64: string } | { readonly file: { readonly name: string } },
  ): void {
    if (this.#text.length > MAX_RESULT_CHARACTERS) return;
    if ('text' in data) this.#text += data.text;
    else if ('file' in data) this.#text += `[file ${data.file.name}]`;
    else this.#text += `[${data.base64.length} characters of base64]`;
  }

  clear(): void {
    this.#text = this.#text.slice(0, this.#keptLength);
    this.#shownLength = this.#keptLength;
  }

  /** Keeps the text so far when later text is cleared. */
  keep(): void {
    this.#keptLength = this.#text.length;
  }

  /** The text since the last call. */
  newText(): string {
    const text = this.#text.slice(this.#shownLength);
    this.#shownLength = this.#text.length;
    return text;
  }
}

/** Tells the client's user why the call does not end yet, and which command ends the wait. */
function questionNote(id: string, { text, until }: { readonly text: string; readonly until: string }): string {
  return `The invocation ${id} waits for the answer of a person until ${until}. To answer: pie answer ${id}\n${text}`;
}

function outcome(messages: string, output: unknown): object {
  const json = JSON.stringify(output ?? null);
  const outputText = typeof output === 'string' ? output : json;
  const text = messages === '' ? outputText : messages;
  if (typeof output !== 'object' || output === null || Array.isArray(output)) return toolResult(text, {});
  if (json.length <= MAX_RESULT_CHARACTERS) return toolResult(text, { structuredContent: output });
  return toolResult(text, {}, `\n[no structured content: it has more than ${MAX_RESULT_CHARACTERS} characters]`);
}

function toolResult(text: string, extraMembers: object, note = ''): object {
  const cutText =
    text.length > MAX_RESULT_CHARACTERS ? `${text.slice(0, MAX_RESULT_CHARACTERS)}\n[cut: the result is longer]` : text;
  // A cut may split a surrogate pair, which strict readers of JSON refuse.
  return { content: [{ type: 'text', text: `${cutText}${note}`.toWellFormed() }], ...extraMembers };
}

function progressTokenOf(params: Params): unknown {
  const meta = params._meta;
  const token = typeof meta === 'object' && meta !== null && 'progressToken' in meta ? meta.progressToken : undefined;
  return typeof token === 'string' || typeof token === 'number' ? token : undefined;
}
