import { fetch, InferletError, type JsonSchema, log, type Response } from '@pie/inferlet';

/** The revision of the protocol that this client speaks. */
const PROTOCOL = '2025-06-18';
/** Maximum pages of a list that the client requests: a server might have an endless list. */
const MAX_PAGES = 32;
/** Time limit of the request that ends a session: the agent's answer waits for this request. */
const END_MS = 5000;

/** A tool of a server. */
export interface McpTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: JsonSchema;
}

/** A tool's answer, as text. */
export interface McpResult {
  readonly content: string;
  readonly isError: boolean;
}

interface Reply {
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string };
}

type Content = { readonly type: string; readonly text?: string };

/**
 * A session with a server of the Model Context Protocol over streamable HTTP (modelcontextprotocol.io, revision 2025-06-18): JSON-RPC by
 * POST, answered as JSON or as a stream of events. The client supports tools only. `await using` ends the session.
 */
export class McpClient implements AsyncDisposable {
  readonly #url: string;
  #session: string | null = null;
  /** True once the server has agreed to the revision of the protocol. */
  #agreed = false;
  #lastId = 0;

  private constructor(url: string) {
    this.#url = url;
  }

  static async connect(url: string): Promise<McpClient> {
    const client = new McpClient(url);
    try {
      await client.#begin();
      return client;
    } catch (error) {
      await client[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #begin(): Promise<void> {
    const clientInfo = { name: 'pie-mcp-agent', version: '0.1.0' };
    const params = { protocolVersion: PROTOCOL, capabilities: {}, clientInfo };
    const { protocolVersion } = await this.#call('initialize', params);
    if (protocolVersion !== PROTOCOL) {
      const theirs = JSON.stringify(protocolVersion);
      throw new InferletError('unsupported', `${this.#url} speaks revision ${theirs}; this client speaks ${PROTOCOL}.`);
    }
    this.#agreed = true;
    using accepted = await this.#post({ method: 'notifications/initialized' });
    if (!accepted.ok)
      throw new InferletError('unavailable', `${this.#url} answered ${accepted.status} to a notification.`);
  }

  /** All tools that the server has. */
  async tools(): Promise<McpTool[]> {
    const tools: McpTool[] = [];
    let cursor: unknown;
    for (let page = 0; page < MAX_PAGES; page++) {
      const { tools: listed, nextCursor } = await this.#call('tools/list', cursor === undefined ? {} : { cursor });
      if (!isListOf(listed, isTool)) throw this.#malformed('tools/list');
      tools.push(...listed);
      if (nextCursor === undefined) return tools;
      cursor = nextCursor;
    }
    throw new InferletError('limit-exceeded', `${this.#url} lists more than ${MAX_PAGES} pages of tools.`);
  }

  async call(name: string, args: unknown): Promise<McpResult> {
    const { content, isError } = await this.#call('tools/call', { name, arguments: args });
    if (!isListOf(content, isContent)) throw this.#malformed('tools/call');
    return { content: content.map(({ type, text }) => text ?? `[${type}]`).join('\n'), isError: isError === true };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#session === null) return;
    try {
      // Ignore the status: a server that does not let clients end sessions answers 405.
      (await fetch(this.#url, { method: 'DELETE', headers: this.#headers(), timeoutMs: END_MS })).close();
    } catch (error) {
      // This failure must not replace the agent's answer or error. The server ends an idle session by itself.
      log(`${this.#url} did not end the session: ${InferletError.from(error).message}`, 'warn');
    }
  }

  #headers(): Record<string, string> {
    return {
      accept: 'application/json, text/event-stream',
      ...(this.#session !== null && { 'mcp-session-id': this.#session }),
      ...(this.#agreed && { 'mcp-protocol-version': PROTOCOL }),
    };
  }

  #post(message: object): Promise<Response> {
    return fetch(this.#url, { json: { jsonrpc: '2.0', ...message }, headers: this.#headers() });
  }

  async #call(method: string, params: object): Promise<Record<string, unknown>> {
    const id = ++this.#lastId;
    using response = await this.#post({ id, method, params });
    if (!response.ok) throw new InferletError('unavailable', `${this.#url} answered ${response.status} to ${method}.`);
    this.#session ??= response.headers.get('mcp-session-id');
    const { result, error } = await replyOf(response, id);
    if (error) throw new InferletError('unavailable', `${method}: ${error.message} (${error.code})`);
    if (!isObject(result)) throw this.#malformed(method);
    return result;
  }

  #malformed(method: string): InferletError {
    return new InferletError(
      'unavailable',
      `${this.#url} answered ${method} in a form that the protocol does not have.`,
    );
  }
}

/** The reply with this id: the whole body, or one event of a stream. A stream may carry other messages too, such as the server's own requests. */
async function replyOf(response: Response, id: number): Promise<Reply> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
    const reply = await response.json();
    return isObject(reply) ? reply : {};
  }
  let data = '';
  for await (const line of response.lines()) {
    if (line.startsWith('data:')) data += `${line.slice(5).trimStart()}\n`;
    // An empty line ends an event.
    if (line !== '' || data === '') continue;
    const message = parsed(data, response.url);
    if (isObject(message) && message.id === id && ('result' in message || 'error' in message)) return message;
    data = '';
  }
  throw new InferletError('unavailable', `${response.url} ended its stream without a reply.`);
}

function parsed(data: string, url: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    throw new InferletError(
      'unavailable',
      `${url} sent an event that is not JSON: ${JSON.stringify(data.slice(0, 80))}.`,
    );
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const isListOf = <T>(value: unknown, is: (item: unknown) => item is T): value is T[] =>
  Array.isArray(value) && value.every(is);

const isTool = (value: unknown): value is McpTool =>
  isObject(value) && typeof value.name === 'string' && isOptionalText(value.description) && isObject(value.inputSchema);

const isContent = (value: unknown): value is Content =>
  isObject(value) && typeof value.type === 'string' && isOptionalText(value.text);

const isOptionalText = (value: unknown): boolean => value === undefined || typeof value === 'string';

/** The schema of a reply: a call of one of the tools or, with `mayAnswer`, the answer. */
export function replySchema(tools: readonly McpTool[], { mayAnswer }: { readonly mayAnswer: boolean }): JsonSchema {
  const calls = tools.map(({ name }, i) => object({ tool: { const: name }, arguments: { $ref: pointerTo(i) } }));
  return {
    $defs: Object.fromEntries(tools.map(({ inputSchema }, i) => [`tool${i}`, movedTo(pointerTo(i), inputSchema)])),
    anyOf: mayAnswer ? [...calls, ANSWER] : calls,
  };
}

/** JSON pointer, as a reference, to the schema of a tool's arguments. */
const pointerTo = (tool: number): string => `#/$defs/tool${tool}`;

const object = (properties: object): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const ANSWER = object({ answer: { type: 'string', maxLength: 1000 } });

/** The schema for use at the pointer `at` in another one: references to its own root become references to `at`. Drops `$id`, which names a root. */
function movedTo(at: string, { $id, ...schema }: JsonSchema): JsonSchema {
  return withMovedRefs(schema, at) as JsonSchema;
}

function withMovedRefs(schema: unknown, at: string): unknown {
  if (Array.isArray(schema)) return schema.map((each) => withMovedRefs(each, at));
  if (!isObject(schema)) return schema;
  return mapMembers(schema, (value, keyword) => {
    if (DATA.has(keyword)) return value;
    if (keyword === '$ref') return typeof value === 'string' && /^#(\/|$)/.test(value) ? at + value.slice(1) : value;
    return BY_NAME.has(keyword) && isObject(value)
      ? mapMembers(value, (named) => withMovedRefs(named, at))
      : withMovedRefs(value, at);
  });
}

/** Keywords whose value is data, not a schema. */
const DATA: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples']);
/** Keywords whose members are schemas, under names that are not keywords. */
const BY_NAME: ReadonlySet<string> = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
]);

const mapMembers = (members: JsonSchema, change: (value: unknown, key: string) => unknown): JsonSchema =>
  Object.fromEntries(Object.entries(members).map(([key, value]) => [key, change(value, key)]));
