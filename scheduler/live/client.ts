import type { Socket } from 'node:net';
import type { EventName, InvocationEvent } from '../invocations/types.ts';
import { Heartbeat, type HeartbeatTimes } from '../links/heartbeat.ts';
import { type LinkSecurity, linkSocket, socketAddress, toMachine } from '../links/security.ts';
import { commonVersion, type Versions, versionRefusal } from '../links/versions.ts';
import {
  EVENT_FIELDS,
  encodeFrame,
  FrameReader,
  LIVE_VERSIONS,
  type LiveAddress,
  type LiveFollower,
  type LiveSource,
  REQUEST_FIELDS,
  type Unfollow,
} from './live.ts';
import type { LiveServer } from './server.ts';

/** Pause before the client connects to a runtime again. */
const RETRY_MS = 250;
/** The same pause after the two sides found no version in common: one of them must be upgraded first. */
const REFUSED_RETRY_MS = 10_000;
/** Longest wait for the runtime's answer to the first frame. */
const HELLO_MS = 5000;

export interface LiveClientOptions {
  /** Certificates for connections to other machines; without them the runtimes there are out of reach. */
  readonly security?: LinkSecurity | undefined;
  /** Versions that this side speaks; those of this release by default. */
  readonly versions?: Versions;
  /** Times of the heartbeat, which watches the connections to network addresses. */
  readonly heartbeat?: HeartbeatTimes;
  /** Called with the reason when a runtime and this side have no version in common. */
  readonly onRefused?: (why: string) => void;
}

/**
 * Follows invocations at the runtimes that run them, over one connection per runtime. A connection closes `IDLE_MS` after its last invocation was
 * left. Runtimes of this process need no connection.
 */
export class LiveClient implements LiveSource {
  readonly #addressOf: (runtimeId: string) => Promise<LiveAddress | null>;
  readonly #submitter: string;
  readonly #options: LiveClientOptions;
  readonly #links = new Map<string, Link>();
  readonly #localServers = new Map<string, LiveServer>();

  /**
   * @param addressOf finds the address at which a runtime shows events; null when it shows none
   * @param submitter name of this process in the jobs that it submits
   */
  constructor(
    addressOf: (runtimeId: string) => Promise<LiveAddress | null>,
    submitter: string,
    options: LiveClientOptions = {},
  ) {
    this.#addressOf = addressOf;
    this.#submitter = submitter;
    this.#options = options;
  }

  /** Registers a runtime of this process. */
  serve(runtimeId: string, server: LiveServer): void {
    this.#localServers.set(runtimeId, server);
  }

  follow(runtimeId: string, id: string, follower: LiveFollower, isPushExpected = false): Unfollow {
    const localServer = this.#localServers.get(runtimeId);
    if (localServer) return localServer.follow(id, follower);
    let link = this.#links.get(runtimeId);
    if (!link) {
      link = new Link(() => this.#addressOf(runtimeId), this.#submitter, this.#options);
      this.#links.set(runtimeId, link);
    }
    const stop = link.follow(id, follower, isPushExpected);
    return (isOver) => {
      stop(isOver);
      if (link.size > 0) return;
      // Runtimes come and go, so drop the link; a later `follow` connects again.
      link.closeWhenIdle(() => this.#links.get(runtimeId) === link && this.#links.delete(runtimeId));
    };
  }

  close(): void {
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
  }
}

/** Time after which a connection without followed invocations closes. */
const IDLE_MS = 60_000;

/** Maximum requests of one frame. */
const MAX_ASKS = 1000;
/** Maximum invocations that a connection remembers because their events came before a follower; it forgets the oldest first. */
const MAX_EARLY = 1024;

/** An invocation that is followed over a connection. */
interface Followed {
  readonly followers: Set<LiveFollower>;
  /** Number of the last event that is in the log or has arrived; null before the first `attached`. */
  knownSeq: number | null;
  /** Epoch of the attempt that shows its events. */
  epoch: number;
  /** True when the runtime shows the events without being asked, until the attempt ends. */
  isPushed: boolean;
}

/** The connection to one runtime; reconnects while it is needed. */
class Link {
  readonly #addressOf: () => Promise<LiveAddress | null>;
  readonly #submitter: string;
  readonly #security: LinkSecurity | undefined;
  readonly #versions: Versions;
  readonly #onRefused: ((why: string) => void) | undefined;
  readonly #heartbeatTimes: HeartbeatTimes;
  #heartbeat: Heartbeat | undefined;
  /** True when the runtime is at a network address. */
  #isRemote = false;
  /** True once the runtime has acknowledged the submitter: it then pushes the events of attempts that begin later, without being asked. */
  #isPushing = false;
  /** Invocations whose events the runtime showed before the client followed them; see `#decline`. */
  readonly #earlyIds = new Set<string>();
  readonly #followed = new Map<string, Followed>();
  #socket: Socket | null = null;
  /** True once both sides have agreed on a version. */
  #isConnected = false;
  #isRefused = false;
  #isConnecting = false;
  #isClosed = false;
  #pendingAsks: string[] = [];
  #idleTimer: NodeJS.Timeout | undefined;
  #retryTimer: NodeJS.Timeout | undefined;

  constructor(addressOf: () => Promise<LiveAddress | null>, submitter: string, options: LiveClientOptions) {
    this.#addressOf = addressOf;
    this.#submitter = submitter;
    this.#security = options.security;
    this.#versions = options.versions ?? LIVE_VERSIONS;
    this.#onRefused = options.onRefused;
    this.#heartbeatTimes = options.heartbeat ?? {};
  }

  get size(): number {
    return this.#followed.size;
  }

  readonly follow = (id: string, follower: LiveFollower, isPushExpected: boolean): Unfollow => {
    clearTimeout(this.#idleTimer);
    const existing = this.#followed.get(id);
    if (existing) {
      existing.followers.add(follower);
      // Events up to `knownSeq` are in the log, or about to be.
      if (existing.knownSeq !== null) follower.attached(existing.knownSeq, existing.epoch);
    } else {
      const mayBePushed = isPushExpected && this.#isPushing;
      // The runtime does not push the events of an invocation that `#decline` has declined.
      const wasDeclined = mayBePushed && this.#earlyIds.delete(id);
      const isPushed = mayBePushed && !wasDeclined;
      this.#followed.set(id, { followers: new Set([follower]), knownSeq: null, epoch: 0, isPushed });
      if (!isPushed) this.#ask('follow', id);
    }
    if (!this.#socket && !this.#isConnecting) void this.#connect();
    return (isOver = false) => {
      const current = this.#followed.get(id);
      if (!current?.followers.delete(follower) || current.followers.size > 0) return;
      this.#followed.delete(id);
      // The runtime itself stops pushing when the attempt ends.
      if (!isOver || !current.isPushed) this.#ask('leave', id);
    };
  };

  closeWhenIdle(onClosed: () => void): void {
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => {
      if (this.size > 0) return;
      onClosed();
      this.close();
    }, IDLE_MS).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#idleTimer);
    clearTimeout(this.#retryTimer);
    this.#socket?.destroy();
  }

  /** Batches the requests of one turn of the event loop into one write. */
  #ask(request: 'follow' | 'leave', id: string): void {
    if (!this.#isConnected) return;
    const isFirst = this.#pendingAsks.length === 0;
    this.#pendingAsks.push(request, id);
    if (isFirst) setImmediate(() => this.#flush());
  }

  #flush(): void {
    const asks = this.#pendingAsks;
    this.#pendingAsks = [];
    if (!this.#isConnected) return;
    const maxFields = MAX_ASKS * REQUEST_FIELDS;
    for (let i = 0; i < asks.length; i += maxFields) this.#socket?.write(encodeFrame(asks.slice(i, i + maxFields)));
  }

  async #connect(): Promise<void> {
    this.#isConnecting = true;
    const liveAddress = await this.#addressOf().catch(() => null);
    this.#isConnecting = false;
    if (this.#isClosed) return;
    // Nothing is sent to another machine without certificates.
    if (liveAddress === null || (liveAddress.machine !== undefined && !this.#security)) return this.#retryLater();
    const reader = new FrameReader();
    const security =
      liveAddress.machine === undefined ? undefined : this.#security && toMachine(this.#security, liveAddress.machine);
    const { oldest, newest } = this.#versions;
    const onOpened = () => {
      socket.write(encodeFrame(['versions', `${oldest} ${newest}`, 'submitter', this.#submitter]));
    };
    let socket: Socket;
    try {
      socket = linkSocket('runtime', liveAddress.address, onOpened, security);
    } catch {
      // `linkSocket` throws for another machine's address without certificates. The check above has not caught it, because the runtime registered
      // its address without its machine; runtimes of this release register both.
      return this.#retryLater();
    }
    this.#socket = socket;
    this.#isRemote = !('path' in socketAddress(liveAddress.address));
    const helloTimer = setTimeout(() => this.#isConnected || socket.destroy(), HELLO_MS).unref();
    socket.on('data', (chunk: Buffer) => {
      this.#heartbeat?.heard();
      try {
        reader.push(chunk, (fields) => this.#handleFields(fields));
      } catch {
        socket.destroy();
      }
    });
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      clearTimeout(helloTimer);
      if (this.#socket !== socket) return;
      this.#heartbeat?.stop();
      this.#heartbeat = undefined;
      this.#socket = null;
      this.#isConnected = false;
      this.#isPushing = false;
      this.#earlyIds.clear();
      this.#pendingAsks = [];
      for (const followed of this.#followed.values()) {
        followed.knownSeq = null;
        followed.isPushed = false;
        for (const follower of [...followed.followers]) follower.lost();
      }
      if (!this.#isClosed) this.#retryLater();
    });
  }

  /**
   * Declines the events that the runtime pushes for an invocation without a follower. The follower has left, or has not learned of the attempt yet.
   */
  #decline(id: string): void {
    this.#ask('leave', id);
    this.#earlyIds.add(id);
    const [oldest] = this.#earlyIds;
    if (this.#earlyIds.size > MAX_EARLY && oldest !== undefined) this.#earlyIds.delete(oldest);
  }

  #retryLater(): void {
    clearTimeout(this.#retryTimer);
    const pauseMs = this.#isRefused ? REFUSED_RETRY_MS : RETRY_MS;
    this.#isRefused = false;
    this.#retryTimer = setTimeout(() => {
      if (!this.#isClosed && !this.#socket && !this.#isConnecting && this.size > 0) void this.#connect();
    }, pauseMs).unref();
  }

  /** Handles a notice (a message of the runtime about the connection itself). */
  #handleNotice(number: number, kind: string, text: string): void {
    if (kind === 'refused') this.#refuse(text);
    else if (kind === 'version') this.#agreeOn(number);
    // This notice acknowledges the submitter.
    else if (kind === 'attached') this.#isPushing = true;
  }

  #agreeOn(version: number): void {
    if (this.#isConnected) return;
    const runtimeVersions = { oldest: version, newest: version };
    if (commonVersion(this.#versions, runtimeVersions) === null) {
      const gateway = { name: 'gateway', versions: this.#versions };
      this.#refuse(versionRefusal('protocol of live events', gateway, { name: 'runtime', versions: runtimeVersions }));
      return;
    }
    this.#isConnected = true;
    if (this.#isRemote) this.#watch();
    for (const id of this.#followed.keys()) this.#ask('follow', id);
  }

  /** Closes the connection when the runtime falls silent. Its followers then read the log. */
  #watch(): void {
    const socket = this.#socket;
    this.#heartbeat = new Heartbeat(
      () => socket?.write(encodeFrame(['alive', ''])),
      () => socket?.destroy(),
      this.#heartbeatTimes,
    );
  }

  #refuse(why: string): void {
    this.#isRefused = true;
    this.#onRefused?.(why);
    this.#socket?.destroy();
  }

  #handleFields(fields: readonly string[]): void {
    for (let i = 0; i + EVENT_FIELDS <= fields.length; ) {
      const id = fields[i] ?? '';
      const number = Number(fields[i + 1]);
      const name = fields[i + 2] ?? '';
      const data = fields[i + 3] ?? '';
      if (id === '') {
        this.#handleNotice(number, name, data);
        i += EVENT_FIELDS;
        continue;
      }
      const followed = this.#followed.get(id);
      if (name === 'attached') {
        if (followed) attach(followed, number, Number(data));
        else this.#decline(id);
        i += EVENT_FIELDS;
        continue;
      }
      const end = endOfEvents(fields, i);
      // Events before `attached` belong to an earlier follow that has ended: skip them.
      if (followed && followed.knownSeq !== null) {
        const events = eventsOf(fields, i, end, followed.epoch);
        followed.knownSeq = events.at(-1)?.seq ?? followed.knownSeq;
        for (const follower of [...followed.followers]) follower.events(events);
      }
      i = end;
    }
  }
}

function attach(followed: Followed, logged: number, epoch: number): void {
  followed.knownSeq = logged;
  followed.epoch = epoch;
  for (const follower of [...followed.followers]) follower.attached(logged, epoch);
}

/** Index after the consecutive events of one invocation that begin at `start`. */
function endOfEvents(fields: readonly string[], start: number): number {
  const id = fields[start];
  let end = start;
  while (end + EVENT_FIELDS <= fields.length && fields[end] === id && fields[end + 2] !== 'attached') {
    end += EVENT_FIELDS;
  }
  return end;
}

function eventsOf(fields: readonly string[], start: number, end: number, epoch: number): InvocationEvent[] {
  const events: InvocationEvent[] = [];
  for (let i = start; i < end; i += EVENT_FIELDS)
    events.push({ seq: Number(fields[i + 1]), epoch, event: fields[i + 2] as EventName, data: fields[i + 3] ?? '' });
  return events;
}
