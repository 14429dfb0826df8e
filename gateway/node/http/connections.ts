import { readFileSync } from 'node:fs';
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { UnprovenConnections } from '#scheduler/links/security.ts';
import { OpenStreams } from '../../app/http/open-streams.ts';

/** Part of the connections that requests with a key may take. The rest is for newcomers: a client proves itself by its first request. */
const PROVEN_PART = 3 / 4;
/** Part of the connections that event streams may take, so that other requests find room beside them. */
const STREAM_PART = 1 / 2;
/** Descriptors for everything but clients: files, Redis, runtimes, webhooks. */
const MIN_OTHER_DESCRIPTORS = 128;
/** As `MIN_OTHER_DESCRIPTORS`, part of the process's limit. */
const OTHER_DESCRIPTORS_PART = 1 / 8;
/** Connections of a gateway with default settings; more than the default `streams`. */
export const DEFAULT_CONNECTIONS = 32_768;

/**
 * The connections that a process may take: `wanted`, or less where the limit on open files (`ulimit -n`) allows less. Node raises the soft limit to
 * the hard limit when it starts.
 */
export function connectionsWithin(wanted: number, descriptors = descriptorLimit()): number {
  if (descriptors === Number.POSITIVE_INFINITY) return wanted;
  const others = Math.max(MIN_OTHER_DESCRIPTORS, Math.ceil(descriptors * OTHER_DESCRIPTORS_PART));
  return Math.max(1, Math.min(wanted, descriptors - others));
}

/** Event streams that fit beside other requests into this number of connections. */
export function streamsWithin(wanted: number, connections: number): number {
  return Math.max(1, Math.min(wanted, Math.floor(connections * STREAM_PART)));
}

/** The process's limit on open files; infinite where it cannot be read. */
function descriptorLimit(): number {
  try {
    const [, soft] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    // Systems without /proc.
    return Number.POSITIVE_INFINITY;
  }
}

/** Requests with a key that are under way on one connection. */
interface Proven {
  /** Functions that end the count of one request each. */
  readonly ends: Set<() => void>;
}

/**
 * Bounds the connections of a server. A connection is *proven* while a request with a valid key is under way on it. It then counts towards its
 * tenant's share of the requests and is never dropped. All others are unproven: new ones, those with half a head, idle ones, and those with a request
 * without a key. When the bound is reached, an unproven one gives way to the newcomer (`UnprovenConnections`), usually the oldest. Its age counts from
 * its opening or from the end of its last request with a key, so a peer without a key cannot renew it.
 */
export class Connections {
  readonly max: number;
  readonly #unproven: UnprovenConnections<Socket>;
  readonly #proven = new Map<Socket, Proven>();
  /** Addresses of open connections; Node forgets that of a closed one. */
  readonly #addresses = new WeakMap<Socket, string>();
  /** Answers that `prove` has counted. */
  readonly #counted = new WeakSet<ServerResponse>();
  readonly #requests: OpenStreams;
  #dropped = 0;

  /** @param max all connections at once */
  constructor(max: number) {
    this.max = max;
    this.#unproven = new UnprovenConnections(max);
    const requests = Math.max(1, Math.floor(max * PROVEN_PART));
    this.#requests = new OpenStreams({ streams: requests, streamsPerKey: requests }, 'requests');
  }

  get open(): number {
    return this.#unproven.count + this.#proven.size;
  }

  /** Connections that gave way to newcomers so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Bounds the connections of the server from now on. */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      this.#addresses.set(socket, socket.remoteAddress ?? '');
      this.#add(socket);
      socket.once('close', () => {
        this.#unproven.remove(socket);
        const proven = this.#proven.get(socket);
        this.#proven.delete(socket);
        for (const end of proven?.ends ?? []) end();
      });
    });
  }

  /**
   * Counts a request whose key is valid, until its answer is over or its connection is closed. A second call for the same answer does nothing.
   *
   * @throws GatewayError `too-many-requests` when the tenant has too many requests under way, `gateway-busy` when all tenants together have
   */
  prove(answer: ServerResponse, principal: { readonly keyId: string; readonly tenant: string }): void {
    const { socket } = answer.req;
    if (socket.destroyed || answer.closed || this.#counted.has(answer)) return;
    const leave = this.#requests.enter(principal);
    this.#counted.add(answer);
    const proven = this.#proven.get(socket) ?? { ends: new Set() };
    this.#proven.set(socket, proven);
    this.#unproven.remove(socket);
    const end = () => {
      leave();
      proven.ends.delete(end);
      if (proven.ends.size > 0 || this.#proven.get(socket) !== proven) return;
      this.#proven.delete(socket);
      this.#add(socket);
    };
    proven.ends.add(end);
    answer.once('close', end);
  }
  /** Adds an unproven connection, the youngest one. */
  #add(socket: Socket): void {
    const room = this.max - this.#proven.size;
    for (const dropped of this.#unproven.add(socket, this.#addresses.get(socket) ?? '', room)) {
      this.#dropped += 1;
      // `destroy` frees the descriptor at once.
      dropped.destroy();
    }
  }
}
