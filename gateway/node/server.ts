import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createAdaptorServer } from '@hono/node-server';
import { getConnInfo } from '@hono/node-server/conninfo';
import { type AppOptions, createApp } from '../app/app.ts';
import type { ControlPlane } from '../app/control.ts';
import { answerBrokenRequests, MAX_HEADER_BYTES } from './broken-requests.ts';
import { pictureOf } from './pictures.ts';

export interface ServeOptions extends Omit<AppOptions, 'draining' | 'shutdown'> {
  readonly host: string;
  /** 0 lets the operating system choose. */
  readonly port: number;
}

export interface RunningServer {
  /** Address for clients on this machine. */
  readonly url: string;
  /**
   * Accepts no more connections and waits `drainMs` for running requests. Then ends every stream with an error event that invites the
   * client to resume it, and closes.
   */
  close(drainMs: number): Promise<void>;
}

/** Connections that may wait for acceptance: bursts of a thousand clients are ordinary. */
const BACKLOG = 4096;
/** Longer than common proxies keep an idle connection, so that the proxy closes the connection and not the gateway. */
const KEEP_ALIVE_MS = 65_000;
/**
 * Longest time in which a request arrives. The app bounds a body by its speed: 64 MiB at 16 KiB a second take 68 minutes, and Node's own
 * 5 minutes would cut the connection without an answer.
 */
const ARRIVAL_MS = 3 * 3_600_000;
/** Time for the last frames to reach their clients. */
const FLUSH_MS = 500;
const POLL_MS = 25;

/** Serves the app on Node. */
export async function serve(control: ControlPlane, options: ServeOptions): Promise<RunningServer> {
  const draining = new AbortController();
  const shutdown = new AbortController();
  const app = createApp(control, {
    clientAddress: (c) => getConnInfo(c).remote.address ?? '',
    picture: pictureOf,
    ...options,
    draining: draining.signal,
    shutdown: shutdown.signal,
  });
  let openRequests = 0;
  const server = createAdaptorServer({
    fetch: app.fetch,
    serverOptions: { maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: ARRIVAL_MS },
  }) as Server;
  answerBrokenRequests(server);
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.on('request', (_request, response) => {
    openRequests += 1;
    response.once('close', () => {
      openRequests -= 1;
    });
  });
  server.listen({ host: options.host, port: options.port, backlog: BACKLOG });
  await once(server, 'listening');
  // This happens, for example, when no file descriptor is left for one more connection. Open connections go on.
  server.on('error', (error) =>
    options.log?.({ level: 'error', message: 'a connection could not be accepted', error }),
  );

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

function urlOf({ address, family, port }: AddressInfo): string {
  const isWildcard = address === '0.0.0.0' || address === '::';
  const host = isWildcard ? '127.0.0.1' : family === 'IPv6' ? `[${address}]` : address;
  return `http://${host}:${port}`;
}
