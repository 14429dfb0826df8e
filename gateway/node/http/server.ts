import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { constants, createZstdDecompress } from 'node:zlib';
import { getRequestListener, RequestError } from '@hono/node-server';
import { getConnInfo } from '@hono/node-server/conninfo';
import { type AppOptions, createApp } from '../../app/app.ts';
import type { ControlPlane } from '../../app/control.ts';
import { GatewayError } from '../../app/errors/gateway-error.ts';
import { type Decoders, webDecoders } from '../../app/http/bodies.ts';
import { answerBrokenRequests, hasHost, MAX_HEADER_BYTES, problemResponse, unusableTarget } from './broken-requests.ts';
import { Connections, connectionsWithin, DEFAULT_CONNECTIONS } from './connections.ts';
import { GuideFiles } from './guides.ts';

export interface ServeOptions extends Omit<AppOptions, 'draining' | 'shutdown' | 'admit'> {
  readonly host: string;
  /** 0 lets the operating system choose. */
  readonly port: number;
  /** Bounds the connections; by default as many as the process's limit on open files allows, at most `DEFAULT_CONNECTIONS`. */
  readonly connections?: Connections;
  /** Longest arrival of a request's head, from its first byte or from the opening of the connection; `HEAD_MS` by default. */
  readonly headMs?: number;
}

export interface RunningServer {
  /** Address for clients on this machine. */
  readonly url: string;
  /**
   * Accepts no more connections, ends open-ended streams, and waits at most `drainMs` for the other requests. Then ends every stream with an error
   * event that invites the client to resume it, and closes all connections.
   */
  close(drainMs: number): Promise<void>;
}

/** Maximum connections that wait for acceptance: bursts of a thousand clients are ordinary. */
const BACKLOG = 4096;
/**
 * Time for which an idle connection stays open. Common proxies keep one for a shorter time. So the proxy closes it first, and never sends a request
 * on a connection that the gateway has closed.
 */
const KEEP_ALIVE_MS = 65_000;
/** See `ServeOptions.headMs`: clients send a head at once, in one or a few packets. */
const HEAD_MS = 10_000;
/** Interval at which Node looks for requests that are late. */
const LATE_CHECK_MS = 1000;
/**
 * Time limit on the arrival of a request, after which Node cuts the connection. Node's default is 5 minutes, too short for a slow upload. The app
 * itself refuses a body below 16 KiB a second. At that speed 64 MiB take 68 minutes, and longer while the app slows the upload down.
 */
const ARRIVAL_MS = 3 * 3_600_000;
/** Maximum time for the last frames to reach their clients. */
const FLUSH_MS = 500;
/** Interval at which `close` looks for open requests. */
const POLL_MS = 25;

/** Serves the app on Node. */
export async function serve(control: ControlPlane, options: ServeOptions): Promise<RunningServer> {
  const draining = new AbortController();
  const shutdown = new AbortController();
  const { connections = new Connections(connectionsWithin(DEFAULT_CONNECTIONS)), headMs = HEAD_MS } = options;
  const app = createApp(control, {
    clientAddress: (c) => getConnInfo(c).remote.address ?? '',
    admit: (c, principal) => connections.prove((c.env as { outgoing: ServerResponse }).outgoing, principal),
    decoders: nodeDecoders(),
    guides: new GuideFiles(),
    ...options,
    draining: draining.signal,
    shutdown: shutdown.signal,
  });
  let openRequests = 0;
  const { corsOrigins = [] } = options;
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const errorHandler = (error: unknown) => {
      if (error instanceof RequestError) return problemResponse(unusableTarget(error), request, corsOrigins);
      // The app itself turns what its handlers throw into answers.
      options.log.error({ error }, 'a request failed');
      return problemResponse(GatewayError.from(error), request, corsOrigins);
    };
    return getRequestListener(app.fetch, { errorHandler })(request, response);
  };
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: headMs,
      requestTimeout: ARRIVAL_MS,
      connectionsCheckingInterval: Math.min(LATE_CHECK_MS, headMs),
      // `hasHost` checks the header, and answers with a problem.
      requireHostHeader: false,
    },
    (request, response) => {
      if (hasHost(request, response, corsOrigins)) void answer(request, response);
    },
  );
  connections.watch(server);
  answerBrokenRequests(server, corsOrigins);
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.on('request', (_request, response) => {
    openRequests += 1;
    response.once('close', () => {
      openRequests -= 1;
    });
  });
  server.listen({ host: options.host, port: options.port, backlog: BACKLOG });
  await once(server, 'listening');
  // After `listening`, an error concerns one new connection: for example, no file descriptor is left for it. Open connections go on.
  server.on('error', (error) => options.log.error({ error }, 'a connection could not be accepted'));

  /** Waits until no request is open, at most `ms`. */
  const idleWithin = async (ms: number) => {
    const deadline = performance.now() + ms;
    for (;;) {
      server.closeIdleConnections();
      if (openRequests === 0 || performance.now() >= deadline) return;
      await sleep(POLL_MS);
    }
  };
  return {
    url: urlOf(server.address() as AddressInfo),
    async close(drainMs) {
      const closed = new Promise((resolve) => server.close(resolve));
      draining.abort();
      await idleWithin(drainMs);
      shutdown.abort();
      await idleWithin(FLUSH_MS);
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Largest window of a zstd body, as a power of two in bytes: the 8 MiB that RFC 9659 allows. */
const ZSTD_WINDOW_LOG = 23;

/** The decoders of `DecompressionStream`, and zstd, which it lacks. */
export function nodeDecoders(): Decoders {
  const zstd = () => {
    const decoder = createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG } });
    return Duplex.toWeb(decoder) as ReadableWritablePair<Uint8Array, Uint8Array>;
  };
  return new Map([...webDecoders(), ['zstd', zstd]]);
}

/** A wildcard address is no address for clients: they use loopback. */
function urlOf({ address, family, port }: AddressInfo): string {
  const isWildcard = address === '0.0.0.0' || address === '::';
  if (isWildcard) return `http://127.0.0.1:${port}`;
  return family === 'IPv6' ? `http://[${address}]:${port}` : `http://${address}:${port}`;
}
