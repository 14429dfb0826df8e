import type { Socket } from 'node:net';
import type { EventName, InvocationEvent } from '../invocations/types.ts';
import { Heartbeat, type HeartbeatTimes } from '../links/heartbeat.ts';
import { type LinkSecurity, linkSocket, toMachine } from '../links/security.ts';
import { socketAddress } from '../links/socket-address.ts';
import { commonVersion, type Versions, versionRefusal } from '../links/versions.ts';
import { ALIVE_VERSION, encodeFrame, FrameReader, LIVE_VERSIONS, SILENT_VERSION } from './frames.ts';
import type { LiveAddress, LiveFollower, LiveSource, Unfollow } from './live.ts';
import type { LiveServer } from './server.ts';

/** Pause before another attempt to reach a runtime. */
const RETRY_MS = 250;
/** Pause before another attempt after the two sides found no version in common: one of them must be upgraded first. */
const REFUSED_RETRY_MS = 10_000;
/** Longest wait for the runtime's answer to the first frame. */
const HELLO_MS = 5000;

export interface LiveClientOptions {
  /** Certificates for connections to other machines; without them the runtimes there are out of reach. */
  readonly security?: LinkSecurity | undefined;
  /** Versions that this side speaks; those of this release by default. */
  readonly versions?: Versions;
  /** Times of the heartbeat of runtimes at network addresses. */
  readonly heartbeat?: HeartbeatTimes;
  /** Takes the reason when a runtime and this side have no version in common. */
  readonly onRefused?: (why: string) => void;
}

/**
 * Follows invocations at the runtimes that run them, over one connection per runtime, open while the client follows an invocation there.
 * Invocations of this process need no connection.
 */
export class LiveClient implements LiveSource {
  readonly #addressOf: (runtimeId: string) => Promise<LiveAddress | null>;
  readonly #submitter: string;
  readonly #options: LiveClientOptions;
  readonly #links = new Map<string, Link>();
  readonly #local = new Map<string, LiveServer>();

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
    this.#local.set(runtimeId, server);
  }

  follow(runtimeId: string, id: string, follower: LiveFollower, isOwn = false): Unfollow {
    const local = this.#local.get(runtimeId);
    if (local) return local.follow(id, follower);
    let link = this.#links.get(runtimeId);
    if (!link) {
      link = new Link(() => this.#addressOf(runtimeId), this.#submitter, this.#options);
      this.#links.set(runtimeId, link);
    }
    const { follow } = link;
    const stop = follow(id, follower, isOwn);
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

/** Maximum ids of one frame. */
const MAX_ASKS = 1000;
/** Maximum remembered invocations whose events came before a follower; the oldest is forgotten first. */
const MAX_EARLY = 1024;

/** An invocation that is followed over a connection. */
interface Followed {
  readonly followers: Set<LiveFollower>;
  /** Number up to which its events are in the log or have arrived; null before the first `attached`. */
  told: number | null;
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
  /** True once the runtime has acknowledged the submitter: it shows the events of its later attempts without being asked. */
  #pushes = false;
  /** Invocations whose events the runtime showed before they were followed. */
  readonly #early = new Set<string>();
  readonly #followed = new Map<string, Followed>();
  #socket: Socket | null = null;
  /** True once both sides have agreed on a version. */
  #connected = false;
  #isRefused = false;
  #connecting = false;
  #closed = false;
  #asks: string[] = [];
  #idle: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;

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

  readonly follow = (id: string, follower: LiveFollower, isOwn: boolean): Unfollow => {
    clearTimeout(this.#idle);
    const known = this.#followed.get(id);
    if (known) {
      known.followers.add(follower);
      // Events up to `told` are in the log, or about to be.
      if (known.told !== null) follower.attached(known.told, known.epoch);
    } else {
      const isPushed = isOwn && this.#pushes && !this.#early.delete(id);
      this.#followed.set(id, { followers: new Set([follower]), told: null, epoch: 0, isPushed });
      if (!isPushed) this.#ask('follow', id);
    }
    if (!this.#socket && !this.#connecting) void this.#connect();
    return (isOver = false) => {
      const left = this.#followed.get(id);
      if (!left?.followers.delete(follower) || left.followers.size > 0) return;
      this.#followed.delete(id);
      if (!isOver || !left.isPushed) this.#ask('leave', id);
    };
  };

  closeWhenIdle(closed: () => void): void {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => {
      if (this.size > 0) return;
      closed();
      this.close();
    }, IDLE_MS).unref();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#idle);
    clearTimeout(this.#retry);
    this.#socket?.destroy();
  }

  /** Batches the requests of one turn of the event loop into one write. */
  #ask(what: 'follow' | 'leave', id: string): void {
    if (!this.#connected) return;
    this.#asks.push(what, id);
    if (this.#asks.length === 2) setImmediate(() => this.#flush());
  }

  #flush(): void {
    const asks = this.#asks;
    this.#asks = [];
    if (!this.#connected) return;
    for (let i = 0; i < asks.length; i += 2 * MAX_ASKS)
      this.#socket?.write(encodeFrame(asks.slice(i, i + 2 * MAX_ASKS)));
  }

  async #connect(): Promise<void> {
    this.#connecting = true;
    const where = await this.#addressOf().catch(() => null);
    this.#connecting = false;
    if (this.#closed) return;
    // Nothing is sent to another machine without certificates.
    if (where === null || (where.machine !== undefined && !this.#security)) return this.#again();
    const reader = new FrameReader();
    const security =
      where.machine === undefined ? undefined : this.#security && toMachine(this.#security, where.machine);
    const { oldest, newest } = this.#versions;
    const opened = () => {
      socket.write(encodeFrame(['versions', `${oldest} ${newest}`, 'submitter', this.#submitter]));
    };
    let socket: Socket;
    try {
      socket = linkSocket('runtime', where.address, opened, security);
    } catch {
      // `linkSocket` refuses a network address without a machine; no runtime of this version registers one.
      return this.#again();
    }
    this.#socket = socket;
    this.#isRemote = !('path' in socketAddress(where.address));
    const late = setTimeout(() => this.#connected || socket.destroy(), HELLO_MS).unref();
    socket.on('data', (chunk: Buffer) => {
      this.#heartbeat?.heard();
      try {
        reader.push(chunk, (fields) => this.#received(fields));
      } catch {
        socket.destroy();
      }
    });
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      clearTimeout(late);
      if (this.#socket !== socket) return;
      this.#heartbeat?.stop();
      this.#heartbeat = undefined;
      this.#socket = null;
      this.#connected = false;
      this.#pushes = false;
      this.#early.clear();
      this.#asks = [];
      for (const followed of this.#followed.values()) {
        followed.told = null;
        followed.isPushed = false;
        for (const follower of [...followed.followers]) follower.lost();
      }
      if (!this.#closed) this.#again();
    });
  }

  /** Declines the events of an invocation that has no follower (yet): its reader has left, or has not heard of the attempt. */
  #decline(id: string): void {
    this.#ask('leave', id);
    this.#early.add(id);
    const [oldest] = this.#early;
    if (this.#early.size > MAX_EARLY && oldest !== undefined) this.#early.delete(oldest);
  }

  #again(): void {
    clearTimeout(this.#retry);
    const pauseMs = this.#isRefused ? REFUSED_RETRY_MS : RETRY_MS;
    this.#isRefused = false;
    this.#retry = setTimeout(() => {
      if (!this.#closed && !this.#socket && !this.#connecting && this.size > 0) void this.#connect();
    }, pauseMs).unref();
  }

  /** Handles a message of the runtime about the connection itself. */
  #told(number: number, what: string, text: string): void {
    if (what === 'refused') this.#refused(text);
    else if (what === 'version') this.#agreed(number);
    else if (what === 'attached') {
      // The runtime answers `submitter` without an answer to `versions`: it states no version.
      if (!this.#connected) this.#agreed(SILENT_VERSION);
      this.#pushes = true;
    }
  }

  #agreed(version: number): void {
    if (this.#connected) return;
    const theirs = { oldest: version, newest: version };
    if (commonVersion(this.#versions, theirs) === null) {
      const gateway = { name: 'gateway', versions: this.#versions };
      this.#refused(versionRefusal('protocol of live events', gateway, { name: 'runtime', versions: theirs }));
      return;
    }
    this.#connected = true;
    if (this.#isRemote && version >= ALIVE_VERSION) this.#watch();
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

  #refused(why: string): void {
    this.#isRefused = true;
    this.#onRefused?.(why);
    this.#socket?.destroy();
  }

  #received(fields: readonly string[]): void {
    for (let i = 0; i + 3 < fields.length; ) {
      const id = fields[i] ?? '';
      if (id === '') {
        this.#told(Number(fields[i + 1]), fields[i + 2] ?? '', fields[i + 3] ?? '');
        i += 4;
        continue;
      }
      const followed = this.#followed.get(id);
      if (fields[i + 2] === 'attached') {
        if (followed) attach(followed, Number(fields[i + 1]), Number(fields[i + 3]));
        else this.#decline(id);
        i += 4;
        continue;
      }
      const end = endOfEvents(fields, i);
      // Before `attached`, events answer an earlier follow that has ended; skip them.
      if (followed && followed.told !== null) {
        const events = eventsOf(fields, i, end, followed.epoch);
        followed.told = events.at(-1)?.seq ?? followed.told;
        for (const follower of [...followed.followers]) follower.events(events);
      }
      i = end;
    }
  }
}

function attach(followed: Followed, logged: number, epoch: number): void {
  followed.told = logged;
  followed.epoch = epoch;
  for (const follower of [...followed.followers]) follower.attached(logged, epoch);
}

/** Index behind the events of the same invocation that begin at `start`; each takes four fields. */
function endOfEvents(fields: readonly string[], start: number): number {
  let end = start;
  while (end + 3 < fields.length && fields[end] === fields[start] && fields[end + 2] !== 'attached') end += 4;
  return end;
}

function eventsOf(fields: readonly string[], start: number, end: number, epoch: number): InvocationEvent[] {
  const events: InvocationEvent[] = [];
  for (let i = start; i < end; i += 4)
    events.push({ seq: Number(fields[i + 1]), epoch, event: fields[i + 2] as EventName, data: fields[i + 3] ?? '' });
  return events;
}
