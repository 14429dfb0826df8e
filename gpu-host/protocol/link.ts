import type { Socket } from 'node:net';
import { deadline, Heartbeat, type HeartbeatTimes } from '#scheduler/links/heartbeat.ts';
import { type LinkSecurity, linkSocket } from '#scheduler/links/security.ts';
import { commonVersion, type Versions, versionRefusal } from '#scheduler/links/versions.ts';
import { type HandlerError, handlerError, ProtocolFault } from './errors.ts';
import { PageLists } from './fields.ts';
import { FrameReader, FrameWriter } from './frames.ts';
import type { HostHello } from './host.ts';
import {
  type DecodedResult,
  type DeviceUsage,
  decodeAlive,
  decodeHeld,
  decodeResults,
  decodeTerminated,
  decodeUsage,
  encodeAlive,
  type Termination,
} from './results.ts';
import { FRAME, LONGEST_OPENING_MS, MAX_JSON_BYTES } from './wire.ts';

/** A call whose result is awaited. */
export interface Pending {
  /** Takes one result; true when the call is over. */
  settle(result: DecodedResult): boolean;
  /** Ends the call without a result of the host. */
  fail(error: HandlerError): void;
}

/** An open inferlet as the link sees it. */
export interface LinkMember {
  /** Call when the host has taken the inferlet's memory. */
  terminated(termination: Termination): void;
  used(usage: DeviceUsage): void;
  /** Call when the host begins or stops holding calls of the inferlet, and with `false` when the host is lost. */
  held(isHeld: boolean): void;
}

export interface LinkEvents {
  onHello(hello: HostHello): void;
  onStats(id: number, json: string): void;
  /** Called once, after every pending call was answered `unavailable`. */
  onLost(cause: string): void;
}

export interface LinkOptions {
  readonly security?: LinkSecurity | undefined;
  /** Random name, the same for all links of one connection: when the link with a heartbeat ends, the host ends the others, too. */
  readonly owner?: string;
  /** Asks the host for signs of life, and ends the link when none comes. */
  readonly heartbeat?: HeartbeatTimes | undefined;
}

/**
 * One socket to a GPU host, from its connection to its first error or its end. Frames may be written at once; the link sends them when it has
 * reached the host. A link is never reopened; its owner makes a new one.
 */
export class Link {
  readonly writer = new FrameWriter();
  readonly pageLists = new PageLists();
  readonly pending = new Map<number, Pending>();
  /** Open inferlets by their handle. */
  readonly inferlets = new Map<number, LinkMember>();
  /** The error of every call on the link once it has ended; undefined before. */
  lost: HandlerError | undefined;
  /** Number of times that the kernel had taken every written byte. Callers use it to bound what an inferlet may leave unsent. */
  drains = 0;
  #socket: Socket;
  #events: LinkEvents;
  #reader = new FrameReader();
  #lastId = 0;
  #isFlushScheduled = false;
  /** True once bytes may be sent: over TLS, after the host has shown a trusted certificate. */
  #isReady = false;
  #remoteError: string | undefined;
  #isIncompatible = false;
  readonly #versions: Versions;
  readonly #heartbeatTimes: HeartbeatTimes | undefined;
  #heartbeat: Heartbeat | undefined;

  /**
   * @param versions of the frames, among which the host may choose. With a single version, calls may be written before the host's hello.
   * @throws Error at a network address of another machine, without `security`
   */
  constructor(address: string, events: LinkEvents, versions: Versions, options: LinkOptions = {}) {
    const { security, owner, heartbeat } = options;
    this.#events = events;
    this.#versions = versions;
    this.#heartbeatTimes = heartbeat;
    this.writer.begin(FRAME.hello);
    this.writer.putText(JSON.stringify({ processId: process.pid, versions, owner }));
    this.writer.end();
    this.writer.version = versions.newest;
    const onReady = () => {
      this.#isReady = true;
      this.flush();
    };
    this.#socket = linkSocket('GPU host', address, onReady, security);
    this.#socket.setNoDelay(true);
    this.#socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.#socket.on('error', (error) => this.close(`the connection to the GPU host failed: ${error.message}`));
    this.#socket.on('close', () => this.close('the GPU host closed the connection'));
  }

  /** True once it is known that the two sides have no version of the frames in common. */
  get isIncompatible(): boolean {
    return this.#isIncompatible;
  }

  /** Version of the frames, once the host has said hello. */
  get version(): number {
    return this.writer.version;
  }

  /** An unused id for a call that wants a result: 1 to 2^32 - 1. */
  nextId(): number {
    do this.#lastId = this.#lastId === 0xffff_ffff ? 1 : this.#lastId + 1;
    while (this.pending.has(this.#lastId));
    return this.#lastId;
  }

  /** Sends the writer's content at the end of this event-loop turn, in one write. */
  scheduleFlush(): void {
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    setImmediate(() => this.flush());
  }

  flush(): void {
    this.#isFlushScheduled = false;
    if (this.lost || !this.#isReady || this.writer.length === 0) return;
    this.#socket.write(this.writer.take(), () => {
      if (this.#socket.writableLength === 0) this.drains++;
    });
  }

  /** Ends the link: every pending call is answered `unavailable` with the cause. */
  close(cause: string): void {
    if (this.lost) return;
    const text = this.#remoteError ?? cause;
    const error = handlerError('unavailable', text);
    this.lost = error;
    this.#heartbeat?.stop();
    this.#socket.destroy();
    const pending = [...this.pending.values()];
    const inferlets = [...this.inferlets.values()];
    this.pending.clear();
    this.inferlets.clear();
    for (const call of pending) call.fail(error);
    for (const inferlet of inferlets) inferlet.held(false);
    this.#events.onLost(text);
  }

  #receive(chunk: Buffer): void {
    this.#heartbeat?.heard();
    try {
      this.#reader.push(chunk, (kind, reader, end) => {
        switch (kind) {
          case FRAME.results:
            decodeResults(reader, end, this.#settle);
            return;
          case FRAME.terminated:
            decodeTerminated(reader, end, (handle, termination) => this.inferlets.get(handle)?.terminated(termination));
            return;
          case FRAME.usage:
            decodeUsage(reader, end, (handle, usage) => this.inferlets.get(handle)?.used(usage));
            return;
          case FRAME.held:
            decodeHeld(reader, end, (handle, isHeld) => this.inferlets.get(handle)?.held(isHeld));
            return;
          case FRAME.alive:
            this.#heartbeat?.allow(decodeAlive(reader, end));
            return;
          case FRAME.hello:
            reader.enter(end);
            this.#hello(JSON.parse(reader.text(MAX_JSON_BYTES)) as HostHello);
            return;
          case FRAME.stats:
            while (!reader.done) {
              reader.enter(end);
              this.#events.onStats(reader.u32(), reader.text(MAX_JSON_BYTES));
              reader.leave(end);
            }
            return;
          case FRAME.error: {
            reader.enter(end);
            const code = reader.text();
            this.#isIncompatible = code === 'version';
            this.#remoteError = `the GPU host ended the connection (${code}): ${reader.text()}`;
            return;
          }
          default:
            throw new ProtocolFault('unexpected', `frame kind ${kind} from a GPU host`);
        }
      });
    } catch (error) {
      this.close(`the GPU host sent what cannot be read: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #hello(hello: HostHello): void {
    const { version } = hello;
    const host = { oldest: version, newest: version };
    if (commonVersion(this.#versions, host) === null) {
      this.#isIncompatible = true;
      const runtime = { name: 'runtime', versions: this.#versions };
      this.close(versionRefusal('GPU protocol', runtime, { name: 'GPU host', versions: host }));
      return;
    }
    this.writer.version = version;
    this.#reader.version = version;
    if (this.#heartbeatTimes) this.#watch(this.#heartbeatTimes);
    this.#events.onHello(hello);
  }

  #watch(times: HeartbeatTimes): void {
    const ask = () => {
      encodeAlive(this.writer, 0);
      this.flush();
    };
    this.#heartbeat = new Heartbeat(ask, (why) => this.close(`the GPU host cannot be reached: ${why}`), times);
  }

  #settle = (id: number, result: DecodedResult): void => {
    // When no call waits for the result, the inferlet was closed while the result was on its way.
    const call = this.pending.get(id);
    if (call?.settle(result)) this.pending.delete(id);
  };
}

/** Interval of the sweeps, in milliseconds. A sweep closes each link that has had no inferlet since the sweep before. */
const SWEEP_MS = 15_000;

export interface TenantLinkOptions extends Pick<LinkOptions, 'security' | 'owner'> {
  readonly sweepMs?: number;
  /** Longest wait for the host's hello on a link, in milliseconds. */
  readonly helloMs?: number;
}

/**
 * The sockets that carry the calls of inferlets to one GPU host process. Each tenant has its own socket, so that a flood of calls from one tenant
 * does not delay the calls of another.
 */
export class TenantLinks {
  readonly #address: string;
  readonly #hostId: string;
  readonly #versions: Versions;
  readonly #linkOptions: LinkOptions;
  readonly #helloMs: number;
  readonly #links = new Map<string, Link>();
  /** Links that had no inferlet at the last sweep and got none since. */
  readonly #idle = new Set<Link>();
  readonly #sweeper: NodeJS.Timeout;

  /**
   * @param hostId the host process that must answer: another process has none of the inferlets, and perhaps other models
   * @param version the version of the frames, on which this side and the host have agreed
   */
  constructor(address: string, hostId: string, version: number, options: TenantLinkOptions = {}) {
    const { sweepMs = SWEEP_MS, helloMs = LONGEST_OPENING_MS, ...linkOptions } = options;
    this.#address = address;
    this.#hostId = hostId;
    this.#versions = { oldest: version, newest: version };
    this.#linkOptions = linkOptions;
    this.#helloMs = helloMs;
    this.#sweeper = setInterval(() => this.#sweep(), sweepMs).unref();
  }

  /** True while the host has calls to answer. */
  get isBusy(): boolean {
    for (const { pending } of this.#links.values()) if (pending.size > 0) return true;
    return false;
  }

  /** The tenant's link, opened when there is none. Calls may be written to it at once: they leave when the host can be reached. */
  of(tenant: string): Link {
    const link = this.#links.get(tenant) ?? this.#open(tenant);
    this.#idle.delete(link);
    return link;
  }

  /** Ends all links: their pending calls are answered `unavailable` with the cause. */
  close(cause: string): void {
    clearInterval(this.#sweeper);
    for (const link of [...this.#links.values()]) link.close(cause);
  }

  #open(tenant: string): Link {
    const link = new Link(
      this.#address,
      {
        onHello: ({ hostId }) => {
          endHelloWait();
          if (hostId !== this.#hostId) link.close('the GPU host was restarted');
        },
        onStats: () => undefined,
        onLost: () => {
          endHelloWait();
          this.#idle.delete(link);
          if (this.#links.get(tenant) === link) this.#links.delete(tenant);
        },
      },
      this.#versions,
      this.#linkOptions,
    );
    const endHelloWait = deadline(this.#helloMs, () =>
      link.close(`the GPU host did not answer within ${this.#helloMs} ms`),
    );
    this.#links.set(tenant, link);
    return link;
  }

  #sweep(): void {
    for (const link of this.#idle) if (link.inferlets.size === 0) link.close('no inferlet of the tenant is open');
    this.#idle.clear();
    for (const link of this.#links.values()) if (link.inferlets.size === 0) this.#idle.add(link);
  }
}
