import { rmSync } from 'node:fs';
import type { Server, Socket } from 'node:net';
import type { InvocationEvent, NewEvent } from '../invocations/types.ts';
import { type LinkSecurity, linkServer, socketAddress } from '../links/security.ts';
import { commonVersion, statedVersions, type Versions, versionRefusal } from '../links/versions.ts';
import { EVENT_FIELDS, encodeFrame, FrameReader, LIVE_VERSIONS, type LiveFollower, REQUEST_FIELDS } from './live.ts';

/** Events that a running attempt has shown and that its log still lacks. */
export interface Unlogged {
  /** Number of the last event that the attempt knows to be in the log. */
  readonly logged: number;
  /** The events after it. */
  readonly events: readonly NewEvent[];
}

/** One attempt that shows its events. */
export interface Showing {
  /** Shows events to all followers; `firstSeq` is the number of the first one. */
  show(firstSeq: number, events: readonly NewEvent[]): void;
  /** Tells followers that events reached the log without being shown; `seq` is the number of the last one. */
  logged(seq: number): void;
  /** Ends the showing of events. */
  end(): void;
}

export interface LiveServerOptions {
  /** Versions that this side speaks; those of this release by default. */
  readonly versions?: Versions;
  /** Called with the reason when a gateway and this side have no version in common. */
  readonly onRefused?: (why: string) => void;
}

interface Attempt {
  readonly epoch: number;
  /** Returns the events that the log lacks. */
  readonly unlogged: () => Unlogged;
}

/** Bytes that a gateway may leave unread. Beyond this limit the server skips events, and the gateway reads them from the log. */
const MAX_UNREAD_BYTES = 1 << 20;
/** Size at which a frame is sent before the turn of the event loop ends. */
const FRAME_BYTES = 64 << 10;
/** Longest wait of an `attached` for the attempt's first events, so that one frame carries the `attached` and the events. */
const LINGER_MS = 10;
/** Maximum invocations that one connection may follow. The server ignores requests for more, and the gateway reads the log of these. */
const MAX_FOLLOWED = 100_000;
/** Approximate bytes of an event besides its data: id, number and name. */
const EVENT_HEADER_BYTES = 64;

/**
 * Shows the events of this process's attempts to gateways, over sockets, before the events are in the log. A gateway names the invocations that it
 * follows, including ones that have not begun. A gateway that gives its name as a submitter gets the attempts of its own invocations without asking.
 * The events of one turn of the event loop share a write, up to `FRAME_BYTES`. The permissions of the socket file control access, and at a network
 * address the certificates of registered machines. A process that can connect may follow every invocation.
 */
export class LiveServer {
  readonly #attempts = new Map<string, Attempt>();
  readonly #followers = new Map<string, Set<LiveFollower>>();
  readonly #connections = new Set<Connection>();
  /** Connections of processes that submit invocations, by the submitter's name. */
  readonly #submitters = new Map<string, Connection>();
  #servers: Server[] = [];
  #isAbandoned = false;
  readonly #versions: Versions;
  readonly #onRefused: ((why: string) => void) | undefined;

  constructor({ versions = LIVE_VERSIONS, onRefused }: LiveServerOptions = {}) {
    this.#versions = versions;
    this.#onRefused = onRefused;
  }

  /** Number of followed invocations. */
  get followed(): number {
    return this.#followers.size;
  }

  /**
   * Listens on one more address: `host:port`, or the path of a unix socket, where an existing file is replaced. Resolves to the port of a network
   * address.
   * @throws Error when it cannot listen, or other machines reach the address and there is no `security`
   */
  async listen(address: string, security?: LinkSecurity): Promise<number | undefined> {
    const where = socketAddress(address);
    if ('path' in where) rmSync(where.path, { force: true });
    const server = linkServer(address, (socket) => this.#accept(socket), security);
    this.#servers.push(server);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(where, () => {
        server.off('error', reject);
        // When the kernel cannot accept a connection (no descriptors left), the gateway reads the log instead.
        server.on('error', () => undefined);
        resolve();
      });
    });
    const bound = server.address();
    return typeof bound === 'object' ? bound?.port : undefined;
  }

  #accept(socket: Socket): void {
    if (this.#isAbandoned) {
      socket.destroy();
      return;
    }
    const connection = new Connection(socket, this);
    this.#connections.add(connection);
    socket.on('close', () => {
      this.#connections.delete(connection);
      if (this.#submitters.get(connection.submitter) === connection) this.#submitters.delete(connection.submitter);
    });
  }

  /**
   * Begins an attempt.
   *
   * @param unlogged returns the events that the log lacks; called when a follower attaches, and when a follower has missed events
   * @param submitter name of the process that submitted the invocation and follows it
   */
  begin(id: string, epoch: number, unlogged: () => Unlogged, submitter = ''): Showing {
    const attempt: Attempt = { epoch, unlogged };
    this.#attempts.set(id, attempt);
    for (const follower of this.#followers.get(id) ?? []) attach(follower, attempt);
    const stop = this.#submitters.get(submitter)?.push(id);
    return {
      show: (firstSeq, events) => {
        const followers = this.#followers.get(id);
        if (!followers || this.#attempts.get(id) !== attempt) return;
        const numbered = numberedFrom(firstSeq, epoch, events);
        for (const follower of followers) follower.events(numbered);
      },
      logged: (seq) => {
        if (this.#attempts.get(id) !== attempt) return;
        for (const follower of this.#followers.get(id) ?? []) follower.attached(seq, epoch);
      },
      end: () => {
        if (this.#attempts.get(id) === attempt) this.#attempts.delete(id);
        stop?.();
      },
    };
  }

  /** The version to speak with a gateway that knows `versions`, or the reason to refuse that gateway. */
  agree(versions: Versions): number | string {
    const version = commonVersion(this.#versions, versions);
    if (version !== null) return version;
    const why = versionRefusal(
      'protocol of live events',
      { name: 'runtime', versions: this.#versions },
      { name: 'gateway', versions },
    );
    this.#onRefused?.(why);
    return why;
  }

  /** Registers a submitter's connection. Attempts of the submitter's invocations that begin later show their events on this connection. */
  enter(connection: Connection): void {
    this.#submitters.set(connection.submitter, connection);
  }

  /** Adds a follower of an invocation that this process runs now or later. The returned function removes the follower. */
  follow(id: string, follower: LiveFollower): () => void {
    const followers = this.#followers.get(id) ?? new Set();
    this.#followers.set(id, followers.add(follower));
    this.attach(id, follower);
    return () => {
      followers.delete(follower);
      if (followers.size === 0 && this.#followers.get(id) === followers) this.#followers.delete(id);
    };
  }

  /** Calls the follower's `attached`, and passes it the events that the log lacks. Does nothing while no attempt runs. */
  attach(id: string, follower: LiveFollower): void {
    const attempt = this.#attempts.get(id);
    if (attempt) attach(follower, attempt);
  }

  /**
   * Closes all connections and accepts no more. The servers keep listening: closing one would remove its socket file,
   * and a successor may already have put its own file there.
   */
  abandon(): void {
    this.#isAbandoned = true;
    for (const server of this.#servers) server.unref();
    for (const connection of this.#connections) connection.close();
  }

  async close(): Promise<void> {
    for (const connection of this.#connections) connection.close();
    const servers = this.#servers.splice(0);
    await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }
}

function attach(follower: LiveFollower, { epoch, unlogged }: Attempt): void {
  const { logged, events } = unlogged();
  follower.attached(logged, epoch);
  if (events.length > 0) follower.events(numberedFrom(logged + 1, epoch, events));
}

function numberedFrom(first: number, epoch: number, events: readonly NewEvent[]): InvocationEvent[] {
  return events.map(({ event, data }, i) => ({ seq: first + i, epoch, event, data }));
}

interface FollowedHere {
  readonly follower: LiveFollower;
  readonly stop: () => void;
}

/** The connection of a gateway. */
class Connection {
  readonly #socket: Socket;
  readonly #server: LiveServer;
  readonly #reader = new FrameReader();
  readonly #followed = new Map<string, FollowedHere>();
  /** Name of the submitter at the other end; '' for none. */
  submitter = '';
  /** Fields of the events that wait for the next write. */
  #fields: string[] = [];
  /** Approximate size of `#fields`. */
  #bytes = 0;
  #isFlushScheduled = false;
  #lingerTimer: NodeJS.Timeout | undefined;
  /** True while the gateway leaves too much unread; the connection then skips events. */
  #isSkipping = false;
  /** Invocations with skipped events. The gateway gets `attached` for them once it has read its backlog. */
  readonly #missed = new Set<string>();
  /** State of the agreement on a version. */
  #greeting: 'awaited' | 'agreed' | 'refused' = 'awaited';

  constructor(socket: Socket, server: LiveServer) {
    this.#socket = socket;
    this.#server = server;
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    socket.on('drain', () => this.#drained());
    socket.on('error', () => this.close());
    socket.on('close', () => this.close());
  }

  close(): void {
    clearTimeout(this.#lingerTimer);
    for (const { stop } of this.#followed.values()) stop();
    this.#followed.clear();
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    try {
      this.#reader.push(chunk, (fields) => {
        for (let i = 0; i + REQUEST_FIELDS <= fields.length; i += REQUEST_FIELDS)
          this.#handleRequest(fields[i] ?? '', fields[i + 1] ?? '');
      });
    } catch {
      this.close();
    }
  }

  /**
   * Follows an invocation without a request. Returns the function that stops this; undefined when the connection already follows the invocation.
   */
  push(id: string): (() => void) | undefined {
    if (this.#followed.has(id)) return;
    this.#follow(id, true);
    const pushed = this.#followed.get(id);
    return () => {
      if (this.#followed.get(id) === pushed) this.#leave(id);
    };
  }

  /** Agrees on a version at the first request, `versions`, in which the gateway states its versions. */
  #greet(request: string, argument: string): void {
    const [oldest, newest] = argument.split(' ').map(Number);
    const versions = statedVersions(request === 'versions' ? { oldest, newest } : undefined);
    const agreed = versions === null ? 'The gateway’s versions cannot be read.' : this.#server.agree(versions);
    if (typeof agreed === 'string') {
      this.#greeting = 'refused';
      this.#socket.end(encodeFrame(['', '0', 'refused', agreed]), () => this.close());
      return;
    }
    this.#greeting = 'agreed';
    this.#put('', agreed, 'version', '');
  }

  /** @param argument id of an invocation, or the name of the submitter */
  #handleRequest(request: string, argument: string): void {
    if (this.#greeting === 'awaited') this.#greet(request, argument);
    if (this.#greeting === 'refused' || request === 'versions') return;
    if (request === 'alive') this.#put('', 0, 'alive', '');
    else if (request === 'leave') this.#leave(argument);
    else if (request === 'submitter') {
      this.submitter = argument;
      this.#server.enter(this);
      this.#put('', 0, 'attached', '');
    } else if (!this.#followed.has(argument)) {
      // The request is `follow`.
      this.#follow(argument, false);
    }
  }

  /** @param lingers true when `attached` waits up to `LINGER_MS` for the first events */
  #follow(id: string, lingers: boolean): void {
    if (this.#followed.size >= MAX_FOLLOWED) return;
    const follower: LiveFollower = {
      attached: (logged, epoch) => this.#put(id, logged, 'attached', String(epoch), lingers),
      events: (events) => {
        for (const { seq, event, data } of events) this.#put(id, seq, event, data);
      },
      lost: () => undefined,
    };
    this.#followed.set(id, { follower, stop: this.#server.follow(id, follower) });
  }

  #leave(id: string): void {
    this.#followed.get(id)?.stop();
    this.#followed.delete(id);
    this.#missed.delete(id);
  }

  #put(id: string, seq: number, event: string, data: string, lingers = false): void {
    if (this.#isSkipping) {
      this.#missed.add(id);
      return;
    }
    this.#fields.push(id, String(seq), event, data);
    this.#bytes += data.length + EVENT_HEADER_BYTES;
    if (this.#bytes >= FRAME_BYTES) this.#flush();
    else if (lingers) this.#lingerTimer ??= setTimeout(() => this.#flush(), LINGER_MS);
    else if (!this.#isFlushScheduled) {
      this.#isFlushScheduled = true;
      setImmediate(() => this.#flush());
    }
  }

  #flush(): void {
    this.#isFlushScheduled = false;
    clearTimeout(this.#lingerTimer);
    this.#lingerTimer = undefined;
    if (this.#fields.length === 0 || this.#socket.destroyed) return;
    if (this.#socket.writableLength > MAX_UNREAD_BYTES) {
      this.#isSkipping = true;
      // The first field of an event is its invocation.
      for (let i = 0; i < this.#fields.length; i += EVENT_FIELDS) this.#missed.add(this.#fields[i] ?? '');
    } else this.#socket.write(encodeFrame(this.#fields));
    this.#fields = [];
    this.#bytes = 0;
  }

  #drained(): void {
    this.#isSkipping = false;
    // `attach` sends events, and the gateway may fall behind again: the remaining invocations then wait for the next drain.
    for (const id of this.#missed) {
      if (this.#isSkipping) return;
      this.#missed.delete(id);
      const followed = this.#followed.get(id);
      if (followed) this.#server.attach(id, followed.follower);
    }
  }
}
