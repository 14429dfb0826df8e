import http from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { deploySource } from './deploy.ts';
import { deployFunction, functionsPlatform, ownAddress } from './functions.ts';
import { ROOT } from './platform.ts';

/** One request that a tool server received: the path, and the JSON of its body. */
export interface ToolRequest {
  readonly path: string;
  // biome-ignore lint/suspicious/noExplicitAny: the tests read what the wire says
  readonly body: any;
}

/** A tool: returns the answer to a request with this JSON. The server sends a string as it is, and any other value as JSON. */
export type ToolHandler = (body: ToolRequest['body']) => unknown;

/** A real HTTP server with one tool per path, on a port of its own. `await using` closes the server. */
export class ToolServer implements AsyncDisposable {
  /** All requests in order of arrival. */
  readonly requests: ToolRequest[] = [];
  readonly #server: http.Server;

  private constructor(server: http.Server) {
    this.#server = server;
  }

  static async start(tools: Readonly<Record<string, ToolHandler>>): Promise<ToolServer> {
    const server = http.createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        void self.#answer(request, Buffer.concat(chunks).toString(), tools).then(({ status, text }) => {
          response.writeHead(status).end(text);
        });
      });
    });
    await functionsPlatform();
    await new Promise<void>((resolve) => server.listen(0, ownAddress(), resolve));
    const self = new ToolServer(server);
    return self;
  }

  /** The server's address and port, as a manifest grants them. */
  get host(): string {
    return `${ownAddress()}:${(this.#server.address() as AddressInfo).port}`;
  }

  url(name: string): string {
    return `http://${this.host}/${name}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(
    request: http.IncomingMessage,
    text: string,
    tools: Readonly<Record<string, ToolHandler>>,
  ): Promise<{ status: number; text: string }> {
    const name = (request.url ?? '/').slice(1);
    const tool = tools[name];
    try {
      const body = text === '' ? undefined : JSON.parse(text);
      this.requests.push({ path: name, body });
      if (!tool) return { status: 404, text: `no tool ${name}` };
      const answer = await tool(body);
      return { status: 200, text: typeof answer === 'string' ? answer : JSON.stringify(answer) };
    } catch (error) {
      return { status: 500, text: String(error) };
    }
  }
}

/** Deploys `functions/<name>` with changed members of its pie.json, such as granted hosts on a test's ports, or limits. */
export async function deployChanged(name: string, change: Readonly<Record<string, unknown>>): Promise<void> {
  // Deploy the unchanged function first: `deployFunction` deploys only once, so later calls do not replace the changed function.
  await deployFunction(name);
  await deploySource(await functionsPlatform(), path.join(ROOT, 'functions', name), { name, manifest: change });
}

/** Deploys `functions/<name>` with grants for these hosts only. */
export const deployGranting = (name: string, ...hosts: readonly string[]): Promise<void> =>
  deployChanged(name, { grants: { hosts } });
