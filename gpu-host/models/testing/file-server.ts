import { readdirSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

/** Interval at which the server checks a connection that it must cut. */
const POLL_MS = 5;

/** Points at which the server cuts connections. */
export interface Cuts {
  /** Bytes of the body before each cut; each request takes the next entry, and later requests are not cut. */
  readonly after: number[];
  /**
   * The client's folder of partial files. The server cuts the connection only when a file there has all sent bytes: a cut loses bytes that are
   * still under way.
   */
  readonly parts: string;
}

/** The server's answers for one path. */
export interface ServedFile {
  readonly bytes: Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cuts?: Cuts;
  /** Error statuses; each request takes the next entry instead of the file. */
  readonly statuses?: number[];
  /** True to ignore ranges and send the whole file with 200. */
  readonly withoutRanges?: boolean;
  /** Required `authorization` header; other requests get 401, or 404 if `isHidden`. */
  readonly requires?: string;
  readonly isHidden?: boolean;
  /** Target of a redirect. */
  readonly location?: string;
  /** True to send only the first half and keep the connection open. */
  readonly stalls?: boolean;
}

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly range: string | undefined;
  readonly authorization: string | undefined;
}

/** A real HTTP server for tests: a registry, a hub or a plain file server, with faults on demand. */
export class FileServer {
  readonly files = new Map<string, ServedFile>();
  readonly requests: SeenRequest[] = [];
  readonly #server = createServer((request, response) => this.#answer(request, response));

  static async start(): Promise<FileServer> {
    const server = new FileServer();
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const path = decodeURI(request.url ?? '/');
    const { range, authorization } = request.headers;
    this.requests.push({ method: request.method ?? '', path, range, authorization });
    const file = this.files.get(path);
    const status = file?.statuses?.shift();
    if (file === undefined || status !== undefined) {
      response.writeHead(status ?? 404).end('no');
      return;
    }
    if (file.requires !== undefined && authorization !== file.requires) {
      response.writeHead(file.isHidden ? 404 : 401).end('unauthorized');
      return;
    }
    if (file.location !== undefined) {
      response.writeHead(302, { ...file.headers, location: file.location }).end();
      return;
    }
    const from = file.withoutRanges ? 0 : Number(/^bytes=(\d+)-$/.exec(range ?? '')?.[1] ?? 0);
    const { length } = file.bytes;
    if (from >= length && from > 0) {
      response.writeHead(416, { 'content-range': `bytes */${length}` }).end();
      return;
    }
    const body = file.bytes.subarray(from);
    response.writeHead(from > 0 ? 206 : 200, {
      ...file.headers,
      'content-length': body.length,
      ...(from > 0 ? { 'content-range': `bytes ${from}-${length - 1}/${length}` } : {}),
    });
    if (request.method === 'HEAD') {
      response.end();
      return;
    }
    const cut = file.cuts?.after.shift();
    if (file.cuts && cut !== undefined) {
      response.write(body.subarray(0, cut));
      const { parts } = file.cuts;
      const poll = setInterval(() => {
        if (largest(parts) >= from + cut) response.destroy();
      }, POLL_MS);
      response.once('close', () => clearInterval(poll));
    } else if (file.stalls) response.write(body.subarray(0, body.length / 2));
    else response.end(body);
  }
}

/** Size of the largest partial file in a folder, bytes; 0 without one. */
function largest(folder: string): number {
  const names = readdirSync(folder, { withFileTypes: true }).filter(
    (entry) => entry.isFile() && entry.name.endsWith('.part'),
  );
  return Math.max(0, ...names.map(({ name }) => statSync(join(folder, name)).size));
}
