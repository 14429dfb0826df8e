import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BuildReply } from '#scheduler/builds/builds.ts';
import { versionOf } from '#scheduler/functions/functions.ts';
import { DEFAULT_LIMITS, parseManifest } from '#scheduler/functions/manifest.ts';
import { isScript } from '#scheduler/functions/script-file.ts';
import { type NewEvent, resultData, type TerminalEvent, type Usage } from '#scheduler/invocations/types.ts';
import type { RuntimeLease } from '#scheduler/runtimes/lease.ts';
import type { RuntimeModel } from '#scheduler/runtimes/types.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { beginAttempt } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { TestRedis, type TestRedisOptions } from '#scheduler/testing/redis.ts';
import { CONTRACT } from '#wit/contract.ts';
import { type Principal, SCOPES, type Scope } from '../app/control.ts';
import { PieClient } from '../client/client.ts';
import { NodeControlPlane, type NodeControlPlaneOptions } from '../node/control-plane.ts';
import { type RunningServer, type ServeOptions, serve } from '../node/http/server.ts';

const WAIT_MS = 120_000;
/** Longer than any test, so that no test needs to renew the lease in time. */
const LEASE_MS = 600_000;

/** Stands for the component of the runtime's engine of scripts. */
const ENGINE = Buffer.from('engine');

const TINY: RuntimeModel = {
  name: 'tiny',
  contextLength: 256,
  vocabularySize: 100,
  pageSize: 16,
  pageCount: 64,
  traits: ['forward'],
};

/** The preamble of a component (layer 1), with content that makes it unique. */
export function componentBytes(content = 'x'): Uint8Array<ArrayBuffer> {
  return new Uint8Array([0x00, 0x61, 0x73, 0x6d, 0x0d, 0x00, 0x01, 0x00, ...new TextEncoder().encode(content)]);
}

/**
 * A Node gateway on its own Redis and real sockets. No runtime process runs: tests write the runtime's records through the scheduler's
 * own classes, with {@link Attempt}, and answer build requests with `build`.
 */
export class GatewayPlatform {
  readonly redis: TestRedis;
  readonly scheduler: Scheduler;
  readonly control: NodeControlPlane;
  readonly lease: RuntimeLease;
  readonly apiKey: string;
  /** Hashes of the components in the build requests so far, in order. */
  readonly built: string[] = [];
  build: (component: Uint8Array) => BuildReply = () => ({ ok: true, artifact: { buildMs: 1 } });
  server: RunningServer;
  readonly #cleanups: (() => Promise<void>)[] = [];

  private constructor(
    redis: TestRedis,
    scheduler: Scheduler,
    lease: RuntimeLease,
    apiKey: string,
    control: NodeControlPlane,
    server: RunningServer,
  ) {
    this.redis = redis;
    this.scheduler = scheduler;
    this.lease = lease;
    this.apiKey = apiKey;
    this.control = control;
    this.server = server;
  }

  static async start(
    options: TestRedisOptions & {
      serve?: Partial<ServeOptions>;
      control?: Partial<NodeControlPlaneOptions>;
      /** Deadline of the gateway's calls of Redis. */
      deadlineMs?: number;
    } = {},
  ): Promise<GatewayPlatform> {
    const redis = await TestRedis.start(options);
    const environment = { PIE_MASTER_KEY: randomBytes(32).toString('base64') };
    const masterKeys = openMasterKeys('', { create: false, environment });
    const scheduler = openScheduler({
      log: silentLog,
      connect: redis.connect,
      leaseMs: LEASE_MS,
      masterKeys,
      ...(options.deadlineMs !== undefined && { deadlineMs: options.deadlineMs }),
    });
    await scheduler.tenants.ensure('default');
    const apiKey = await newKey(scheduler, 'default', SCOPES);
    const engine = createHash('sha256').update(ENGINE).digest('hex');
    const lease = await scheduler.runtimes.acquire({ name: 'test-runtime', contract: CONTRACT, slots: 100, engine });
    await lease.describe({ models: [TINY] });
    const control = new NodeControlPlane(scheduler, { log: silentLog, limits: DEFAULT_LIMITS, ...options.control });
    const server = await serve(control, {
      log: silentLog,
      host: '127.0.0.1',
      port: 0,
      version: 'test',
      ...options.serve,
    });
    const platform = new GatewayPlatform(redis, scheduler, lease, apiKey, control, server);
    const builder = scheduler.createBuildWorker({
      runtimeId: lease.id,
      build: async ({ componentHash }) => {
        platform.built.push(componentHash);
        const component = (await scheduler.blobs.get(componentHash)) ?? new Uint8Array();
        // Like a runtime, which stores its engine at the first build of a script.
        if (isScript(component)) await scheduler.blobs.putEngine(ENGINE);
        return platform.build(component);
      },
    });
    builder.start();
    platform.#cleanups.push(() => builder.close());
    return platform;
  }

  get url(): string {
    return this.server.url;
  }

  client(apiKey = this.apiKey, url = this.url): PieClient {
    return new PieClient({ url, apiKey });
  }

  async key(scopes: readonly Scope[], tenant: Principal['tenant'] = 'default'): Promise<string> {
    await this.scheduler.tenants.ensure(tenant);
    return newKey(this.scheduler, tenant, scopes);
  }

  /** Registers a function without a build. */
  async register(manifest: { name: string; [member: string]: unknown }, tenant = 'default'): Promise<string> {
    const parsed = parseManifest(manifest);
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.errors));
    const component = componentBytes(manifest.name);
    const componentHash = await this.scheduler.blobs.put(tenant, component);
    const version = versionOf(parsed.manifest, componentHash);
    await this.scheduler.functions.put({
      name: manifest.name,
      version,
      tenant,
      manifest: parsed.manifest,
      componentHash,
      componentBytes: component.byteLength,
      createdAt: Date.now(),
    });
    return version;
  }

  /** Begins an attempt of an invocation, as a runtime does. */
  async attempt(id: string): Promise<Attempt> {
    const attempt = await beginAttempt(this.scheduler, id, this.lease.id);
    if ('refused' in attempt) throw new Error(`the attempt was refused: ${attempt.refused}`);
    return new Attempt(this.scheduler, id, attempt.epoch, attempt.nextSeq);
  }

  /** Waits until the function has an invocation that is not in `known`, and returns the id of the latest. */
  async submitted(name: string, known: ReadonlySet<string> = new Set()): Promise<string> {
    for (const until = Date.now() + WAIT_MS; Date.now() < until; await sleep(5)) {
      const invocation = (await this.scheduler.invocations.recent('default', name)).find(({ id }) => !known.has(id));
      if (invocation !== undefined) return invocation.id;
    }
    throw new Error(`no invocation of ${name} came`);
  }

  /** Listens, as a runtime does, for the request to cancel this invocation; `asked` resolves when it comes. */
  async cancelOf(id: string): Promise<{ asked: Promise<void> }> {
    let resolve: () => void = () => undefined;
    const asked = new Promise<void>((resolved) => {
      resolve = resolved;
    });
    const stop = await this.scheduler.control.onCancel(this.lease.id, (cancelled) => {
      if (cancelled === id) resolve();
    });
    this.onStop(async () => stop());
    return { asked };
  }

  onStop(cleanup: () => Promise<void>): void {
    this.#cleanups.push(cleanup);
  }

  async stop(): Promise<void> {
    await this.server.close(0);
    for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup();
    await this.lease.release().catch(() => undefined);
    await this.scheduler.close();
    await this.redis.stop();
  }
}

/** Creates a key; the tenant must exist. */
async function newKey(scheduler: Scheduler, tenant: string, scopes: readonly Scope[]): Promise<string> {
  const outcome = await scheduler.apiKeys.create(tenant, { name: 'test', scopes });
  if (outcome.kind !== 'created') throw new Error(`creating a key answered ${outcome.kind}`);
  return outcome.apiKey;
}

/** Writes a runtime's records for one attempt of an invocation. */
export class Attempt {
  readonly id: string;
  readonly epoch: number;
  readonly #scheduler: Scheduler;
  #nextSeq: number;

  constructor(scheduler: Scheduler, id: string, epoch: number, nextSeq: number) {
    this.#scheduler = scheduler;
    this.id = id;
    this.epoch = epoch;
    this.#nextSeq = nextSeq;
  }

  async append(...events: { event: NewEvent['event']; data: unknown }[]): Promise<void> {
    const written = events.map(({ event, data }) => ({ event, data: JSON.stringify(data) }));
    const outcome = await this.#scheduler.invocations.append(this.id, this.epoch, this.#nextSeq, written);
    if (outcome !== 'ok') throw new Error(`append answered ${outcome}`);
    this.#nextSeq += events.length;
  }

  async start(attempt = 1): Promise<void> {
    const again = attempt > 1 ? { attempt } : {};
    await this.append({
      event: 'start',
      data: { invocation: this.id, function: 'f', version: 'v', queuedMs: 1, coldStart: false, ...again },
    });
  }

  /** Ends this attempt but not its invocation. */
  async giveUp(cause: string, usage: Usage): Promise<void> {
    const outcome = await this.#scheduler.invocations.requeue(this.id, this.epoch, this.#nextSeq, cause, usage);
    if (outcome !== 'requeued') throw new Error(`requeue answered ${outcome}`);
  }

  async say(...texts: string[]): Promise<void> {
    await this.append(...texts.map((text) => ({ event: 'message' as const, data: { text } })));
  }

  /** Stores a file and appends its message. */
  async sendFile(name: string, mediaType: string, content: Uint8Array): Promise<void> {
    const outcome = await this.#scheduler.files.put(this.id, name, mediaType, content, this.epoch);
    if (outcome !== 'ok') throw new Error(`put answered ${outcome}`);
    await this.append({ event: 'message', data: { file: { name, mediaType, bytes: content.length } } });
  }

  async succeed(output: unknown, usage: Usage = { outputTokens: 1 }): Promise<void> {
    await this.#finish({ event: 'result', data: JSON.stringify({ output, usage }) }, usage);
  }

  /** @param output JSON text */
  async succeedWith(output: string, usage: Usage = { outputTokens: 1 }): Promise<void> {
    await this.#finish({ event: 'result', data: resultData(output, usage) }, usage);
  }

  async fail(
    code: Extract<TerminalEvent, { event: 'error' }>['code'],
    message: string,
    more: { readonly retryAfterMs?: number } = {},
  ): Promise<void> {
    await this.#finish({ event: 'error', data: JSON.stringify({ code, message, ...more }), code, message }, null);
  }

  async #finish(terminal: TerminalEvent, usage: Usage | null): Promise<void> {
    const outcome = await this.#scheduler.invocations.finish(this.id, this.epoch, this.#nextSeq, terminal, usage);
    if (outcome !== 'ok') throw new Error(`finish answered ${outcome}`);
  }
}
