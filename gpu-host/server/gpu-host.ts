import { randomUUID } from 'node:crypto';
import { linkSync, lstatSync, renameSync, rmSync } from 'node:fs';
import { connect, type Server, type Socket } from 'node:net';
import type { Tracer } from '@opentelemetry/api';
import type { Vitals } from '#infra/telemetry/vitals.ts';
import { type LinkSecurity, linkServer, socketAddress } from '#scheduler/links/security.ts';
import type { Versions } from '#scheduler/links/versions.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { EncoderEngine, type HostedEncoder } from '../encoders/engine.ts';
import { ModelEngine } from '../handlers/engine/engine.ts';
import { type HostedModel, maxTopK, traitsOf } from '../handlers/engine/model.ts';
import { DeviceShare } from '../handlers/sharing/device-share.ts';
import { ThreadShare } from '../handlers/sharing/thread-share.ts';
import { type HostBytes, hostBytes } from '../memory/host-bytes.ts';
import { Tenants } from '../memory/tenants.ts';
import type { ProtocolFaultCode } from '../protocol/errors.ts';
import type { Device, GpuHostStats, HostHello, ModelCompute, ModelStats, StatsOptions } from '../protocol/host.ts';
import { LONGEST_OPENING_MS, LONGEST_STEP_MS, PROTOCOL_VERSIONS } from '../protocol/wire.ts';
import { Attempts } from './attempts.ts';
import { Connection } from './connection.ts';
import { type ConnectionLimits, DEFAULT_CONNECTION_LIMITS } from './connection-limits.ts';

export type { HostedModel } from '../handlers/engine/model.ts';

export interface GpuHostOptions {
  readonly log: Logger;
  /**
   * Name in the hello; runtimes that expect another name refuse the host. Every runtime accepts a host without a name.
   */
  readonly name?: string;
  readonly limits?: Partial<ConnectionLimits>;
  /** Models without pages: they turn texts into vectors and scores. */
  readonly encoders?: readonly HostedEncoder[];
  /** Memory besides pages that the tenants share; `hostBytes()` by default. */
  readonly bytes?: HostBytes;
  /** The machine's certificate and those that it accepts; needed at an address that other machines reach. */
  readonly security?: LinkSecurity | undefined;
  /** Versions of the protocol; those that this release speaks by default. */
  readonly versions?: Versions;
  /** Makes spans of batches whose inferlets are traced. */
  readonly tracer?: Tracer;
  /** Reads the health of the process. */
  readonly vitals?: () => Vitals;
}

/** Maximum tenants in `stats`: those that hold most pages. */
const MAX_TENANTS = 1000;

/**
 * A GPU host: loaded models behind a socket. One instance owns its backends' devices. It runs in its own process (`gpu-host/main.ts`) or,
 * in tests, beside the client on a real socket.
 */
export class GpuHost {
  readonly engines: readonly ModelEngine[];
  readonly #encoders: readonly EncoderEngine[];
  readonly #log: Logger;
  readonly #name: string | undefined;
  readonly #security: LinkSecurity | undefined;
  readonly #versions: Versions;
  #limits: ConnectionLimits;
  readonly #tenants = new Tenants();
  readonly #attempts = new Attempts();
  #server: Server | undefined;
  /** Devices whose steps block this process's thread. */
  readonly #blockingDevices = new Set<DeviceShare>();
  #connections = new Set<Connection>();
  #unflushedConnections = new Set<Connection>();
  readonly #hostId = randomUUID();
  #isFlushScheduled = false;
  #sinceMs = performance.now();
  #vitals: (() => Vitals) | undefined;

  /** @throws TraitError when a model claims a trait without the traits that this trait builds on. */
  constructor(models: readonly HostedModel[], options: GpuHostOptions) {
    for (const model of models) checkTraits(model.name, traitsOf(model));
    this.#log = options.log;
    this.#name = options.name;
    this.#security = options.security;
    this.#versions = options.versions ?? PROTOCOL_VERSIONS;
    this.#limits = { ...DEFAULT_CONNECTION_LIMITS, ...options.limits };
    this.#vitals = options.vitals;
    const bytes = options.bytes ?? hostBytes();
    const shares = new Map<string, DeviceShare>();
    const thread = new ThreadShare();
    /** `blocks` is true for a device whose steps block this process's thread. */
    const shareOf = ({ name, index }: Device, blocks: boolean): DeviceShare => {
      const device = `${name} ${index}`;
      const share = shares.get(device) ?? new DeviceShare(blocks ? () => this.#forewarn() : undefined);
      shares.set(device, share);
      if (blocks) this.#blockingDevices.add(share);
      return share;
    };
    const flush = () => this.#flush();
    this.engines = models.map((model) => {
      // A CUDA step computes beside the thread; the other backends hold the thread until the step ends.
      const share = shareOf(model.backend.device, model.backend.name !== 'cuda');
      return new ModelEngine(model, this.#tenants, bytes, share, thread, flush, options.log, options.tracer);
    });
    this.#encoders = (options.encoders ?? []).map(
      (model) => new EncoderEngine(model, bytes, shareOf(model.device, true), flush, options.log),
    );
  }

  /**
   * Listens on a unix socket's path (a stale file is replaced) or `host:port` (0 picks a port); resolves with the address to connect to.
   * @throws Error when it cannot listen, or other machines reach the address and there is no `security`.
   */
  async listen(address: string): Promise<string> {
    const server = linkServer(address, (socket) => this.#accept(socket), this.#security, LONGEST_OPENING_MS);
    this.#server = server;
    const bound = await listen(server, address);
    // This happens, for example, when no file descriptor is left for one more connection. Open connections go on.
    server.on('error', (error) => this.#log.error({ error }, 'a connection could not be accepted'));
    return bound;
  }

  /** Counters of all models and encoders; `reset` resets them after reading, `modelsOnly` leaves out tenants and the health of the process. */
  stats({ reset = false, modelsOnly = false }: StatsOptions = {}): GpuHostStats {
    const nowMs = performance.now();
    const stats: GpuHostStats = {
      elapsedMs: nowMs - this.#sinceMs,
      connections: this.#connections.size,
      models: this.engines.map(modelStats),
      encoders: this.#encoders.map(({ stats }) => stats),
      tenants: modelsOnly ? [] : this.#tenants.stats(MAX_TENANTS),
      ...(this.#vitals && !modelsOnly && { vitals: this.#vitals() }),
    };
    if (reset) {
      this.#sinceMs = nowMs;
      for (const engine of this.engines) engine.stats.reset();
      for (const encoder of this.#encoders) encoder.resetStats();
    }
    return stats;
  }

  /** Stops listening, ends every connection and waits for the batch on the device. The caller disposes of the backends. */
  async close(): Promise<void> {
    const closed = this.#endAll('shutdown', 'the GPU host is going down');
    await Promise.all([...this.engines, ...this.#encoders].map((engine) => engine.stop()));
    await closed;
  }

  /**
   * Ends every connection with a cause, because the host can compute no more. Unsent results are lost; pending calls answer `unavailable`
   * with the cause. Resolves when all connections are closed.
   */
  abandon(why: string): Promise<void> {
    return this.#endAll('internal', why);
  }

  #endAll(code: ProtocolFaultCode, why: string): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    const closed = server ? new Promise<void>((resolve) => server.close(() => resolve())) : Promise.resolve();
    // End watched connections last: the end of a watched connection ends the other connections of its runtime, with another cause.
    const connections = [...this.#connections].sort((one, other) => Number(one.isWatched) - Number(other.isWatched));
    for (const connection of connections) connection.end(code, why);
    return closed;
  }

  #accept(socket: Socket): void {
    const connection = new Connection(
      socket,
      {
        engines: this.engines,
        encoders: this.#encoders,
        log: this.#log,
        hello: () => this.#hello(),
        versions: this.#versions,
        attempts: this.#attempts,
        limitTenant: (tenant, limit) => this.#tenants.setLimit(tenant, limit),
        stats: (options) => this.stats(options),
        silentMs: () => this.#silentMs(),
        touched: (touched) => this.#touch(touched),
        ended: (ended) => {
          this.#connections.delete(ended);
          this.#unflushedConnections.delete(ended);
          if (ended.isWatched) this.#endOthersOf(ended);
        },
      },
      this.#limits,
    );
    this.#connections.add(connection);
  }

  /** Ends the other connections of a watched connection's owner. The watched one has ended, so its runtime is gone or closes the others, too. */
  #endOthersOf({ owner }: Connection): void {
    if (owner === undefined) return;
    for (const other of [...this.#connections])
      if (other.owner === owner) other.end('timeout', 'the runtime’s connection for the state of the host has ended');
  }

  #forewarn(): void {
    for (const connection of this.#connections) connection.forewarn();
  }

  #silentMs(): number {
    for (const { isLong } of this.#blockingDevices) if (isLong) return LONGEST_STEP_MS;
    return 0;
  }

  /** Schedules a flush after this turn of the event loop; an engine that finishes its work may flush before. */
  #touch(connection: Connection): void {
    this.#unflushedConnections.add(connection);
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#isFlushScheduled = false;
    if (this.#unflushedConnections.size === 0) return;
    for (const connection of this.#unflushedConnections) connection.flush();
    this.#unflushedConnections.clear();
  }

  #hello(): Omit<HostHello, 'version'> {
    return {
      ...(this.#name !== undefined && { name: this.#name }),
      hostId: this.#hostId,
      processId: process.pid,
      models: this.engines.map(({ model, model: { name, backend, directory, bits = 32, thoughts } }) => ({
        name,
        ...computeOf(model),
        contextLength: backend.config.contextLength,
        vocabularySize: backend.config.vocabularySize,
        pageSize: backend.pageSize,
        pageCount: backend.pageCount,
        traits: traitsOf(model),
        directory,
        maxTopK: maxTopK(backend),
        bits,
        ...(thoughts !== undefined && { thoughts }),
      })),
      encoders: this.#encoders.map(({ model: { name, encoder, directory, device } }) => {
        const { head, hiddenSize, contextLength, tokenTypes } = encoder.config;
        const size = head.kind === 'reranker' ? 1 : hiddenSize;
        return { name, kind: head.kind, size, contextLength, tokenTypes, directory, device };
      }),
    };
  }
}

function computeOf({ backend, reason }: Pick<HostedModel, 'backend' | 'reason'>): ModelCompute {
  const { name, precision, kv, device } = backend;
  return { backend: name, precision, ...(kv !== undefined && { kv }), device, ...(reason !== undefined && { reason }) };
}

function modelStats(engine: ModelEngine): ModelStats {
  const { stats, model, memory, registry, batcher, spaces } = engine;
  const { free, cached, owned, total, swappedOut, prefix, idle, ...relief } = memory.stats();
  const { exports, files } = registry.stats();
  const { tokens, sequences } = stats.profile;
  const efficientTokens = tokens.efficient(batcher.limits.maxTokens);
  return {
    name: model.name,
    ...computeOf(model),
    pages: { free, cached, owned, total },
    swappedOutPages: swappedOut,
    idlePages: idle,
    prefix,
    ...relief,
    exports: exports + files,
    inferlets: spaces.size,
    queues: batcher.queues,
    waitingCalls: batcher.waiting,
    batches: stats.batches,
    stepsAhead: stats.stepsAhead,
    vainGuesses: stats.vainGuesses,
    meanBatchSize: stats.batches === 0 ? 0 : stats.sequences / stats.batches,
    batchSizes: [...stats.batchSizes],
    tokens: stats.tokens,
    decodeTokens: stats.decodeTokens,
    images: stats.images,
    imageHits: stats.imageHits,
    failedCalls: stats.failedCalls,
    deviceBusyMs: stats.deviceBusyMs,
    meanStepMs: stats.batches === 0 ? 0 : stats.forwardMs / stats.batches,
    ...(efficientTokens !== undefined && { efficientTokens }),
    stepTimes: { tokens: tokens.points, sequences: sequences.points },
    graceMs: stats.graceMs,
    waitCounts: [...stats.waitCounts],
    waitMs: stats.waitMs,
    paddingShare: model.backend.paddingShare?.() ?? 0,
    graphsRefused: model.backend.graphs?.().refused ?? 0,
  };
}

/** Maximum attempts to listen at a path: other hosts may change the path between two attempts. */
const MAX_ATTEMPTS = 10;

/**
 * Listens on a unix socket's path or `host:port` (port 0 picks one); resolves with the address to connect to. Replaces the socket file of a
 * host that died without closing it; a file at which a process answers stays. Of several hosts that start at once, one gets the path.
 * @throws Error when the address is taken or cannot be used.
 */
export async function listen(server: Server, address: string): Promise<string> {
  const target = socketAddress(address);
  for (let attempt = 1; ; attempt++) {
    try {
      await listenOnce(server, target);
      break;
    } catch (error) {
      if (!('path' in target) || (error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      const foundIdentity = identityOf(target.path);
      if (attempt === MAX_ATTEMPTS || (await answers(target.path))) throw error;
      if (foundIdentity !== null) removeDead(target.path, foundIdentity);
    }
  }
  const bound = server.address();
  if (bound === null || typeof bound === 'string') return address;
  return bound.family === 'IPv6' ? `[${bound.address}]:${bound.port}` : `${bound.address}:${bound.port}`;
}

/** Removes the socket file with this identity. If another host has replaced the file meanwhile, that host's file goes back to its path. */
function removeDead(path: string, identity: string): void {
  const asidePath = `${path}.${randomUUID().slice(0, 8)}`;
  try {
    renameSync(path, asidePath);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  try {
    if (identityOf(asidePath) !== identity) linkSync(asidePath, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(asidePath, { force: true });
  }
}

/**
 * Identity of a socket file, which the file that replaces it does not have; null for any other file. The time is part of it, because a file system
 * may reuse the inode number of a removed file.
 */
function identityOf(path: string): string | null {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat?.isSocket() ? `${stat.dev} ${stat.ino} ${stat.mtimeNs}` : null;
}

function listenOnce(server: Server, where: { path: string } | { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(where, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** False when no process listens at the path. Other errors mean that a process does: for example, its queue of connections is full. */
function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT'));
  });
}

/** Traits that each trait builds on; a trait that is not listed builds on none. */
const SUPERTRAITS: Readonly<Record<string, readonly string[]>> = {
  forward: ['allocate'],
  'output-text': ['allocate'],
  'input-text': ['allocate', 'forward'],
  tokenize: ['input-text'],
  fused: ['forward', 'input-text', 'output-text'],
  penalties: ['fused'],
  introspect: ['forward'],
  'kv-files': ['forward', 'allocate'],
  'input-image': ['allocate', 'forward'],
  adapter: ['forward', 'fused'],
};

/** A model claims a trait that it cannot offer. */
export class TraitError extends Error {
  override readonly name = 'TraitError';
}

/**
 * Checks that a model claims, with each trait, also the traits that this trait builds on.
 * @throws TraitError naming the model, each such trait and the missing ones.
 */
export function checkTraits(model: string, traits: readonly string[]): void {
  const claimed = new Set(traits);
  const faults = traits.flatMap((trait) => {
    const missing = (SUPERTRAITS[trait] ?? []).filter((needed) => !claimed.has(needed));
    return missing.length > 0 ? [`${trait} needs ${missing.join(' and ')}`] : [];
  });
  if (faults.length > 0)
    throw new TraitError(`the model ${model} claims traits without what they need: ${faults.join('; ')}`);
}
