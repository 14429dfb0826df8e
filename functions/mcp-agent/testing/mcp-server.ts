import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Schema, Validator } from '@cfworker/json-schema';

const PROTOCOL = '2025-06-18';
const SESSION = 'session-7';

/** A tool of the server. */
export interface ServedTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Schema;
  // biome-ignore lint/suspicious/noExplicitAny: any value that the schema allows
  call(args: any): string;
}

interface Rpc {
  readonly id?: number;
  readonly method: string;
  readonly params?: {
    readonly name?: string;
    readonly arguments?: unknown;
    readonly cursor?: string;
    readonly protocolVersion?: string;
  };
}

/**
 * A server of the Model Context Protocol over streamable HTTP, as specified: it keeps sessions, lists one tool a page,
 * answers `tools/list` in JSON, and `tools/call` as a stream. In this stream, a notification and a request of the server precede
 * the reply; the request has the same id as the client's call. The server checks arguments against the tool's schema.
 */
export class McpServer implements AsyncDisposable {
  /** Requested methods, in order; `DELETE` at the end of a session. */
  readonly methods: string[] = [];
  /** Arguments that a tool's schema refused. */
  readonly refused: unknown[] = [];
  readonly calls: { name: string; arguments: unknown }[] = [];
  /** If true, breaks the connection when the client asks to end the session. */
  breaksAtEnd = false;
  /** If true, refuses `notifications/initialized`. */
  refusesToBegin = false;
  /** Replies that replace the server's own, by method: an object has the members besides `jsonrpc` and `id`; a text is the whole body or event. */
  replies: Readonly<Record<string, object | string>> = {};
  readonly #tools: readonly ServedTool[];
  readonly #server: http.Server;
  #open = false;

  private constructor(tools: readonly ServedTool[]) {
    this.#tools = tools;
    this.#server = http.createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => this.#handle(request, response, Buffer.concat(chunks).toString()));
    });
  }

  static async start(tools: readonly ServedTool[], port = 0): Promise<McpServer> {
    const self = new McpServer(tools);
    await new Promise<void>((resolve) => self.#server.listen(port, '127.0.0.1', resolve));
    return self;
  }

  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `http://${this.host}/mcp`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #handle(request: http.IncomingMessage, response: http.ServerResponse, body: string): void {
    const { headers, method } = request;
    const rpc = (body === '' ? { method } : JSON.parse(body)) as Rpc;
    this.methods.push(rpc.method);
    if (rpc.method !== 'initialize') {
      if (!this.#open || headers['mcp-session-id'] !== SESSION) return void response.writeHead(404).end();
      if (headers['mcp-protocol-version'] !== PROTOCOL) return void response.writeHead(400).end();
    }
    if (method === 'DELETE') {
      this.#open = false;
      if (this.breaksAtEnd) return void request.socket.destroy();
      return void response.writeHead(204).end();
    }
    if (!/application\/json.*text\/event-stream/.test(headers.accept ?? '')) return void response.writeHead(406).end();
    if (rpc.id === undefined) return void response.writeHead(this.refusesToBegin ? 500 : 202).end();
    const replaced = this.replies[rpc.method];
    const reply = (part: object): string =>
      typeof replaced === 'string' ? replaced : JSON.stringify({ jsonrpc: '2.0', id: rpc.id, ...(replaced ?? part) });
    if (rpc.method === 'tools/call') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(
        'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message",\ndata: "params":{"level":"info"}}\n\n',
      );
      response.write(`data: ${JSON.stringify({ jsonrpc: '2.0', id: rpc.id, method: 'ping' })}\n\n`);
      return void response.end(`: comment\nevent: message\r\ndata: ${reply(this.#call(rpc))}\r\n\r\n`);
    }
    const json = { 'content-type': 'application/json' };
    if (rpc.method === 'initialize') {
      this.#open = true;
      const result = {
        protocolVersion: PROTOCOL,
        capabilities: { tools: {} },
        serverInfo: { name: 'test', version: '1' },
      };
      return void response.writeHead(200, { ...json, 'mcp-session-id': SESSION }).end(reply({ result }));
    }
    if (rpc.method === 'tools/list') {
      const page = Number(rpc.params?.cursor ?? 0);
      const { name, description, inputSchema } = this.#tools[page] as ServedTool;
      const more = page + 1 < this.#tools.length ? { nextCursor: String(page + 1) } : {};
      return void response
        .writeHead(200, json)
        .end(reply({ result: { tools: [{ name, description, inputSchema }], ...more } }));
    }
    response.writeHead(200, json).end(reply({ error: { code: -32601, message: 'Method not found' } }));
  }

  #call({ params }: Rpc): object {
    const tool = this.#tools.find(({ name }) => name === params?.name);
    if (!tool) return { error: { code: -32602, message: `Unknown tool: ${params?.name}` } };
    this.calls.push({ name: tool.name, arguments: params?.arguments });
    const { valid, errors } = new Validator(tool.inputSchema, '2020-12').validate(params?.arguments);
    if (!valid) {
      this.refused.push(params?.arguments);
      return { error: { code: -32602, message: errors[0]?.error ?? 'Invalid arguments' } };
    }
    try {
      return { result: { content: [{ type: 'text', text: tool.call(params?.arguments) }], isError: false } };
    } catch (error) {
      return { result: { content: [{ type: 'text', text: String(error) }], isError: true } };
    }
  }
}
