import { randomInt, randomUUID } from 'node:crypto';
import { deadline, type HeartbeatTimes } from '#scheduler/links/heartbeat.ts';
import { type LinkSecurity, socketAddress } from '#scheduler/links/security.ts';
import type { Versions } from '#scheduler/links/versions.ts';
import { DeviceClient } from './device-client.ts';
import { handlerError } from './errors.ts';
import type { EncoderSummary, GpuHostStats, HostHello, ModelSummary, StatsOptions } from './host.ts';
import { DEFAULT_TENANT, type InferletOptions } from './issuer.ts';
import { Link, type LinkEvents, TenantLinks } from './link.ts';
import { FRAME, PROTOCOL_VERSIONS, STATS } from './wire.ts';
import { within } from './within.ts';

export type {
  AdapterInfo,
  Distribution,
  ExportInfo,
  FileInfo,
  FileRights,
  FinishReason,
  Imported,
  Mask,
  Residency,
  RunChunk,
  RunRequest,
  Sampler,
  StepOutput,
  StepRequest,
  StepResult,
  TenantLimit,
  Tier,
} from './calls.ts';
export type { DeviceClient } from './device-client.ts';
export { type HandlerError, type HandlerErrorTag, handlerError, type Outcome } from './errors.ts';
export type {
  EncoderStats,
  EncoderSummary,
  GpuHostStats,
  ModelStats,
  ModelSummary,
  PageStats,
  PrefixStats,
  StatsOptions,
  StepTimes,
} from './host.ts';
export type { InferletOptions } from './issuer.ts';
export { SharedPages } from './page-budget.ts';
export type { DeviceUsage, Termination } from './results.ts';
export type { RunHandle } from './run.ts';

export interface ConnectOptions {
  /** Name of the host, also in messages and logs; its address by default. The connection refuses a host whose hello has another name. */
  readonly name?: string;
  /**
   * Called with the reason when another host answers at the address, or the two sides have no version of the protocol in common. The connection
   * then waits for `retry`.
   */
  readonly onRefused?: (why: string) => void;
  /** Maximum wait of `connect` for the host's hello, over all attempts, in milliseconds: 10,000 by default. */
  readonly deadlineMs?: number;
  /** Maximum wait for the hello in one attempt, in milliseconds: 10,000 by default. After it, the attempt's socket closes. */
  readonly helloMs?: number;
  /** Directories of models on this machine, by model name. They replace the directories in the hello, which are on the host's machine. */
  readonly directories?: ReadonlyMap<string, string>;
  /** The machine's certificate and those that it accepts; needed for hosts on other machines. */
  readonly security?: LinkSecurity | undefined;
  /** Versions of the protocol; those that this release speaks by default. */
  readonly versions?: Versions;
  /** Times of the heartbeat, for a host at a network address only: the supervisor watches the hosts at unix sockets. */
  readonly heartbeat?: HeartbeatTimes;
  /** First and longest pause between attempts to reconnect, in milliseconds: 20 and 500 by default. */
  readonly reconnectMs?: { readonly first: number; readonly longest: number };
}

interface StatsWaiter {
  resolve(stats: GpuHostStats): void;
  reject(error: Error): void;
  endWait(): void;
}

const HELLO_MS = 10_000;
const STATS_DEADLINE_MS = 10_000;

/**
 * A runtime's connection to one GPU host: a socket for the host's state, and one for the calls of each tenant's inferlets. A tenant's calls of
 * one event-loop turn leave in one write.
 *
 * After a loss, every pending call answers `unavailable`, and so does every later call of the inferlets that were open: the host has died with
 * their pages, or has released them. The connection reconnects by itself and then serves inferlets that are opened afterwards.
 */
export class GpuHostConnection {
  readonly name: string;
  readonly #expectedName: string | undefined;
  readonly #onRefused: ((why: string) => void) | undefined;
  #address: string;
  readonly #security: LinkSecurity | undefined;
  readonly #versions: Versions;
  readonly #heartbeat: HeartbeatTimes | undefined;
  readonly #helloMs: number;
  #reconnect: { readonly first: number; readonly longest: number };
  /** The socket for the host's state; undefined until the hello of an accepted host. */
  #link: Link | undefined;
  /** The sockets of the tenants, while there is a link. */
  #tenants: TenantLinks | undefined;
  #hello: HostHello | undefined;
  #helloAt: number | undefined;
  #connectedSinceMs: number | undefined;
  #lostAt: number | undefined;
  #directories: ReadonlyMap<string, string> | undefined;
  #lostListeners = new Set<(cause: string) => void>();
  #readyListeners = new Set<() => void>();
  #retryTimer: NodeJS.Timeout | undefined;
  #retryMs: number;
  #closed = false;
  /** True from a refusal until `retry`. */
  #isRefused = false;
  /** The link of the current attempt; it becomes `#link` with the hello. */
  #opening: Link | undefined;
  #lastInferlet = 0;
  #lastStats = 0;
  #statsWaiters = new Map<number, StatsWaiter>();
  /** The counters that were read last. */
  #latestStats: GpuHostStats | undefined;

  private constructor(address: string, options: ConnectOptions) {
    this.name = options.name ?? address;
    this.#expectedName = options.name;
    this.#onRefused = options.onRefused;
    this.#address = address;
    this.#directories = options.directories;
    this.#security = options.security;
    this.#versions = options.versions ?? PROTOCOL_VERSIONS;
    this.#heartbeat = 'path' in socketAddress(address) ? undefined : (options.heartbeat ?? {});
    this.#helloMs = options.helloMs ?? HELLO_MS;
    this.#reconnect = options.reconnectMs ?? { first: 20, longest: 500 };
    this.#retryMs = this.#reconnect.first;
  }

  /**
   * Begins to connect to a unix socket's path or `host:port`, and keeps trying until `close`.
   * @throws Error at a network address of another machine, without `security`
   */
  static open(address: string, options: ConnectOptions = {}): GpuHostConnection {
    const connection = new GpuHostConnection(address, options);
    connection.#open();
    return connection;
  }

  /**
   * Connects, and waits for the hello.
   * @throws Error when the host did not answer in time.
   */
  static async connect(address: string, options: ConnectOptions = {}): Promise<GpuHostConnection> {
    const { deadlineMs = 10_000 } = options;
    const connection = GpuHostConnection.open(address, options);
    if (await within(deadlineMs, new Promise<void>((resolve) => connection.onReady(resolve)))) return connection;
    connection.close();
    throw new Error(`no GPU host answered at ${address} within ${deadlineMs} ms`);
  }

  /** True while the host has calls of inferlets to answer. */
  get isBusy(): boolean {
    return this.#tenants?.isBusy ?? false;
  }

  /** The models of the latest hello. */
  get models(): readonly ModelSummary[] {
    return this.#hello?.models ?? [];
  }

  /** The encoders of the latest hello. */
  get encoders(): readonly EncoderSummary[] {
    return this.#hello?.encoders ?? [];
  }

  /** Version of the protocol that both sides speak; 0 while the host cannot be reached. */
  get version(): number {
    return this.#link?.version ?? 0;
  }

  /** True when calls can reach a host now. */
  get connected(): boolean {
    return this.#link !== undefined;
  }

  /** Time of the last hello, milliseconds since the Unix epoch. */
  get connectedAt(): number | undefined {
    return this.#helloAt;
  }

  /** Time of the last hello, by `performance.now`, which changes of the system clock do not affect. */
  get connectedSinceMs(): number | undefined {
    return this.#connectedSinceMs;
  }

  /** Time of the last connection loss, milliseconds since the Unix epoch. */
  get lostAt(): number | undefined {
    return this.#lostAt;
  }

  /** Id of the host process that answered last; see `HostHello`. */
  get hostId(): string | undefined {
    return this.#hello?.hostId;
  }

  /** Process id of the host that answered last. */
  get hostProcessId(): number | undefined {
    return this.#hello?.processId;
  }

  /** Opens an inferlet's address space on the host. Without a connection the inferlet is dead: its calls answer `unavailable`. */
  openInferlet(options: InferletOptions): DeviceClient {
    this.#lastInferlet = (this.#lastInferlet + 1) >>> 0 || 1;
    const link = this.#tenants?.of(options.tenant ?? DEFAULT_TENANT) ?? DOWN;
    return new DeviceClient(link, this.#lastInferlet, options, this.models, this.encoders);
  }

  /**
   * The host's counters; `reset` resets them after reading, `modelsOnly` leaves out tenants and the health of the process.
   * @throws Error when the host cannot be reached.
   */
  stats(options: StatsOptions = {}): Promise<GpuHostStats> {
    const link = this.#link;
    if (!link) return Promise.reject(new Error('the GPU host cannot be reached'));
    const id = ++this.#lastStats;
    return new Promise((resolve, reject) => {
      const endWait = deadline(STATS_DEADLINE_MS, () => {
        this.#statsWaiters.delete(id);
        reject(new Error(`the GPU host did not answer within ${STATS_DEADLINE_MS} ms`));
      });
      this.#statsWaiters.set(id, { resolve, reject, endWait });
      link.writer.begin(FRAME.statsRequest);
      link.writer.put(id);
      link.writer.put((options.reset ? STATS.reset : 0) | (options.modelsOnly ? STATS.modelsOnly : 0));
      link.writer.end();
      link.scheduleFlush();
    });
  }

  /**
   * Maximum efficient size, in tokens, of a model's step (up to this size, further tokens take little more time) or of an encoder's batch. Undefined
   * until the host knows the size. The value comes from the last `stats`, which the runtime reads every second to report its load.
   */
  efficientTokens(name: string): number | undefined {
    const { models = [], encoders = [] } = this.#latestStats ?? {};
    const model = models.find((one) => one.name === name);
    return model ? model.efficientTokens : encoders.find((one) => one.name === name)?.maxBatchTokens;
  }

  /** Calls `listener` on each connection loss (not on `close`); returns a function that removes the listener. */
  onLost(listener: (cause: string) => void): () => void {
    this.#lostListeners.add(listener);
    return () => this.#lostListeners.delete(listener);
  }

  /** Calls `listener` on each hello; the host may have new models and pages. Returns a function that removes the listener. */
  onReady(listener: () => void): () => void {
    this.#readyListeners.add(listener);
    return () => this.#readyListeners.delete(listener);
  }

  /** Tries again to connect after a refusal (`onRefused`); without effect otherwise. */
  retry(): void {
    if (!this.#isRefused || this.#closed) return;
    this.#isRefused = false;
    this.#open();
  }

  /** Ends the connection for good; pending calls answer `unavailable`, and the host releases what the inferlets held. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#retryTimer);
    this.#lostListeners.clear();
    this.#readyListeners.clear();
    const link = this.#opening;
    this.#opening = undefined;
    link?.close('the connection was closed');
  }

  #open(): void {
    const sharedOptions = { security: this.#security, owner: randomUUID() };
    const events: LinkEvents = {
      onHello: (hello) => {
        endHelloWait();
        const { name } = hello;
        if (name !== undefined && name !== (this.#expectedName ?? name)) return this.#refuse(link, name);
        this.#hello = this.#withLocalDirectories(hello);
        this.#helloAt = Date.now();
        this.#connectedSinceMs = performance.now();
        this.#link = link;
        this.#tenants = new TenantLinks(this.#address, hello.hostId, link.version, sharedOptions);
        this.#retryMs = this.#reconnect.first;
        for (const listener of [...this.#readyListeners]) listener();
      },
      onStats: (id, json) => {
        this.#latestStats = JSON.parse(json) as GpuHostStats;
        this.#takeStats(id)?.resolve(this.#latestStats);
      },
      onLost: (cause) => {
        endHelloWait();
        this.#lost(cause, link.isIncompatible);
      },
    };
    const link = new Link(this.#address, events, this.#versions, { ...sharedOptions, heartbeat: this.#heartbeat });
    const endHelloWait = deadline(this.#helloMs, () =>
      link.close(`the GPU host did not answer within ${this.#helloMs} ms`),
    );
    this.#opening = link;
  }

  #refuse(link: Link, foundName: string): void {
    this.#isRefused = true;
    const { name } = this;
    const why = `The GPU host at ${this.#address} is ${foundName}, not ${name}. Give ${name} an address that leads to it from every machine.`;
    link.close(why);
    this.#onRefused?.(why);
  }

  #withLocalDirectories(hello: HostHello): HostHello {
    const withLocalDirectory = <Summary extends { readonly name: string }>(model: Summary): Summary => {
      const directory = this.#directories?.get(model.name);
      return directory === undefined ? model : { ...model, directory };
    };
    return { ...hello, models: hello.models.map(withLocalDirectory), encoders: hello.encoders.map(withLocalDirectory) };
  }

  #lost(cause: string, isIncompatible: boolean): void {
    const wasUp = this.#link !== undefined;
    this.#link = undefined;
    this.#tenants?.close(cause);
    this.#tenants = undefined;
    this.#latestStats = undefined;
    if (wasUp) this.#lostAt = Date.now();
    for (const id of [...this.#statsWaiters.keys()]) this.#takeStats(id)?.reject(new Error(cause));
    if (wasUp) for (const listener of [...this.#lostListeners]) listener(cause);
    if (isIncompatible && !this.#closed) {
      this.#isRefused = true;
      this.#onRefused?.(`The GPU host ${this.name} cannot be used: ${cause}`);
    }
    if (this.#closed || this.#isRefused) return;
    const pauseMs = this.#retryMs + randomInt(1 + Math.ceil(this.#retryMs / 4));
    this.#retryMs = Math.min(this.#retryMs * 2, this.#reconnect.longest);
    this.#retryTimer = setTimeout(() => this.#open(), pauseMs);
  }

  #takeStats(id: number): StatsWaiter | undefined {
    const waiter = this.#statsWaiters.get(id);
    this.#statsWaiters.delete(id);
    waiter?.endWait();
    return waiter;
  }
}

/** Stands in for the link while there is none. */
const DOWN = {
  lost: handlerError('unavailable', 'the GPU host cannot be reached; it is restarting or its address is wrong'),
} as const;
