import http from 'node:http';
import type { AddressInfo } from 'node:net';

/** A search engine that answers each query with two texts. `await using` closes it. */
export class SearchEngine implements AsyncDisposable {
  /** Queries in order of arrival. */
  readonly queries: string[] = [];
  readonly #server: http.Server;

  private constructor(server: http.Server) {
    this.#server = server;
  }

  /** Refuses the first `failures` requests, and answers others after `delayMs`. Listens on any free port if `port` is 0. */
  static async start({ delayMs = 0, failures = 0, port = 0 } = {}): Promise<SearchEngine> {
    let failuresLeft = failures;
    const server = http.createServer((request, response) => {
      const query = new URL(request.url ?? '/', 'http://engine').searchParams.get('q') ?? '';
      engine.queries.push(query);
      if (failuresLeft-- > 0) {
        response.writeHead(503).end();
        return;
      }
      const found = [`They say about this: ${query}`, { text: 'Mom baked a cake with sweet apples.' }];
      setTimeout(() => response.writeHead(200).end(JSON.stringify(found)), delayMs);
    });
    const engine = new SearchEngine(server);
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    return engine;
  }

  /** `127.0.0.1:port`, as a manifest grants it. */
  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Address to which clients append a query. */
  get url(): string {
    return `http://${this.host}/?q=`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
