import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { GpuHostConnection, type GpuHostStats, type ModelStats } from '#gpu-host/protocol/client.ts';
import { DEFAULT_LIMITS, type Manifest, manifestModels, resolveLimits } from '#scheduler/functions/manifest.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { END_RECORDS, isPlatformCode } from '#scheduler/invocations/endings.ts';
import type { Retention } from '#scheduler/invocations/replies.ts';
import type { FailureCode, InvocationEvent } from '#scheduler/invocations/types.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { openMasterKeys } from '#scheduler/secrets/master-keys.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { CollectedLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { type Runtime, type RuntimeOptions, startRuntime } from '../runtime.ts';
import { type Probe, probeMachine } from '../sandboxes/index.ts';
import { TEST_ARTIFACTS } from './cache.ts';
import { testComponent } from './components.ts';
import { TestGpuHost } from './gpu-host.ts';
import { TEST_SANDBOXES } from './sandboxes.ts';

export { TEST_MODEL } from './gpu-host.ts';

/** Far longer than an invocation takes on a quiet machine, because other tests run at the same time. */
export const DEADLINE_MS = 180_000;
/** Longer than any stall of a test's event loop. */
const LEASE_MS = 8000;

export interface RuntimePlatformOptions {
  readonly pageCount?: number;
  /** Further settings of the GPU host's model. */
  readonly gpuModel?: Readonly<Record<string, unknown>>;
  /** Name of a random encoder on the GPU host. */
  readonly encoder?: string;
  readonly runtime?: Partial<RuntimeOptions>;
  readonly retention?: Partial<Retention>;
  /** Duration of a lease of the platform's runtimes, in ms. */
  readonly leaseMs?: number;
  /** The platform's clock, where it differs from that of this machine. */
  readonly clock?: () => number;
}

/** The events of an invocation, from its start to its end. */
export interface Transcript {
  readonly events: readonly InvocationEvent[];
  /** Texts of the invocation's messages. */
  readonly messages: readonly string[];
  readonly logs: readonly string[];
  /** The terminal event, with its parsed data. */
  readonly end: {
    readonly event: string;
    readonly data: Record<string, unknown> & {
      code?: string;
      message?: string;
      output?: unknown;
      usage?: Record<string, number>;
    };
  };
}

const probes = new Map<string | undefined, Promise<Probe>>();

/** Probes this machine once for all platforms of this process that start with the same PATH. */
function probeOnce(): Promise<Probe> {
  const { PATH } = process.env;
  const known = probes.get(PATH) ?? probeMachine();
  probes.set(PATH, known);
  return known;
}

/** Redis, a GPU host and a runtime, all real, on sockets in a temporary directory. */
export class RuntimePlatform {
  readonly redis: TestRedis;
  readonly scheduler: Scheduler;
  readonly log = new CollectedLog();
  readonly errors = this.log.errors;
  /** The runtime that tests use; some tests replace it. */
  runtime: Runtime;
  readonly #leaseMs: number;
  readonly #gpuHost: TestGpuHost;
  readonly #spawned: ChildProcess[] = [];
  #statsConnection: GpuHostConnection | undefined;

  private constructor(redis: TestRedis, gpuHost: TestGpuHost, options: RuntimePlatformOptions) {
    const { retention = {}, leaseMs = LEASE_MS, clock } = options;
    this.#leaseMs = leaseMs;
    this.redis = redis;
    const environment = { PIE_MASTER_KEY: randomBytes(32).toString('base64') };
    const masterKeys = openMasterKeys('', { create: false, environment });
    this.scheduler = openScheduler({
      log: this.log,
      connect: redis.connect,
      retention,
      leaseMs,
      masterKeys,
      // On a busy machine, Redis may answer a test's follower late.
      outageMs: 20_000,
      ...(clock && { clock }),
    });
    this.#gpuHost = gpuHost;
    // `start` sets the runtime.
    this.runtime = undefined as never;
  }

  static async start(options: RuntimePlatformOptions = {}): Promise<RuntimePlatform> {
    const [redis, gpuHost] = await Promise.all([
      TestRedis.start({ appendOnly: true }),
      TestGpuHost.start({
        ...(options.pageCount !== undefined && { pages: options.pageCount }),
        ...(options.gpuModel && { settings: options.gpuModel }),
        ...(options.encoder !== undefined && { encoder: options.encoder }),
      }),
    ]);
    const platform = new RuntimePlatform(redis, gpuHost, options);
    try {
      platform.runtime = await platform.startRuntime(options.runtime);
    } catch (error) {
      await platform.#close();
      throw error;
    }
    return platform;
  }

  async startRuntime(options: Partial<RuntimeOptions> = {}): Promise<Runtime> {
    return startRuntime({
      name: 'runtime-test',
      probe: await probeOnce(),
      scheduler: this.scheduler,
      gpuHosts: [{ name: 'gpu-host-1', address: this.#gpuHost.address }],
      artifactsDirectory: TEST_ARTIFACTS,
      concurrency: 64,
      sandboxes: TEST_SANDBOXES,
      limits: DEFAULT_LIMITS,
      gpuHostDeadlineMs: 30_000,
      log: this.log,
      ...options,
    });
  }

  /** Starts a runtime in its own process; `kill` ends it with SIGKILL. */
  async spawnRuntime(name: string): Promise<{ readonly pid: number; kill(): Promise<void> }> {
    const program = fileURLToPath(new URL('./runtime-process.ts', import.meta.url));
    const addresses = [this.redis.socket, this.#gpuHost.address, TEST_ARTIFACTS];
    const child = spawn(process.execPath, [program, name, ...addresses, `${this.#leaseMs}`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#spawned.push(child);
    await once(child.stdout, 'data');
    return {
      pid: child.pid ?? -1,
      async kill() {
        const exited = once(child, 'exit');
        child.kill('SIGKILL');
        await exited;
      },
    };
  }

  /** Ends the GPU host with SIGKILL; everything that it held is gone. */
  killGpuHost(): Promise<void> {
    return this.#gpuHost.kill();
  }

  /** @param encoderSettings further settings of the encoder, until the next restart */
  restartGpuHost(encoderSettings?: Readonly<Record<string, unknown>>): Promise<void> {
    return this.#gpuHost.restart(encoderSettings);
  }

  /** Deploys JavaScript, or a component. */
  async deploy(
    source: string | Uint8Array,
    manifest: Partial<Manifest> = {},
    tenant = 'default',
  ): Promise<FunctionVersion> {
    const component = typeof source === 'string' ? await testComponent(source) : source;
    const outcome = await this.scheduler.deployments.deploy({
      tenant,
      manifest: { name: `test-${randomUUID().slice(0, 8)}`, ...manifest },
      component,
    });
    if (!outcome.ok) throw new Error(`${outcome.code}: ${outcome.message}`);
    return outcome.version;
  }

  /** Queues an invocation and returns its id. */
  async submit(version: FunctionVersion, input: unknown, deadlineMs = DEADLINE_MS): Promise<string> {
    const { id } = await this.scheduler.submit({
      id: randomUUID(),
      tenant: version.tenant,
      function: version.name,
      version: version.version,
      submittedAt: this.scheduler.store.clock(),
      deadlineMs,
      restartable: version.manifest.restartable ?? false,
      input: JSON.stringify(input),
      limits: resolveLimits(version.manifest, DEFAULT_LIMITS, JSON.stringify(input)),
      ...(version.manifest.expectedPages !== undefined && { expectedPages: version.manifest.expectedPages }),
      models: manifestModels(version.manifest),
    });
    return id;
  }

  /** Fails when the log has no record, or several, of an end that the platform caused. Other processes have logs of their own. */
  async #assertLogged(id: string, { code }: { readonly code: FailureCode }): Promise<void> {
    if (!isPlatformCode(code) || this.#spawned.length > 0) return;
    const records = () =>
      this.log.records.filter(({ message, fields }) => message === END_RECORDS.ended && fields.invocation === id);
    await eventually(() => records().length > 0, `the log has a record of the end of ${id} (${code})`);
    const codes = records().map(({ fields }) => fields.code);
    if (codes.length !== 1 || codes[0] !== code) throw new Error(`${id} ended as ${code}; logged: ${codes}`);
  }

  /** Follows an invocation to its end; the log must have a record of an end that the platform caused. */
  async transcript(id: string): Promise<Transcript> {
    const events: InvocationEvent[] = [];
    for await (const event of this.scheduler.events.follow(id, 0, AbortSignal.timeout(DEADLINE_MS + 5000)))
      events.push(event);
    const texts = (name: string, field: string) =>
      events
        .filter(({ event }) => event === name)
        .map(({ data }) => String((JSON.parse(data) as Record<string, unknown>)[field]));
    const last = events.at(-1);
    if (!last) throw new Error(`invocation ${id} has no events`);
    if (last.event === 'error') await this.#assertLogged(id, JSON.parse(last.data) as { code: FailureCode });
    return {
      events,
      messages: texts('message', 'text'),
      logs: texts('log', 'message'),
      end: { event: last.event, data: JSON.parse(last.data) as Transcript['end']['data'] },
    };
  }

  async invoke(version: FunctionVersion, input: unknown = null, deadlineMs?: number): Promise<Transcript> {
    return this.transcript(await this.submit(version, input, deadlineMs));
  }

  /** KV pages that no inferlet holds, including cached ones. */
  async freePages(): Promise<number> {
    const { free, cached } = (await this.gpuStats())?.pages ?? { free: -1, cached: 0 };
    return free + cached;
  }

  /** The GPU host's counters of its model. */
  async gpuStats(): Promise<ModelStats | undefined> {
    return (await this.#hostStats()).models[0];
  }

  /** Tokens that the GPU host's encoder has computed. */
  async tokensEncoded(): Promise<number> {
    return (await this.#hostStats()).encoders[0]?.tokens ?? 0;
  }

  async #hostStats(): Promise<GpuHostStats> {
    this.#statsConnection ??= await GpuHostConnection.connect(this.#gpuHost.address);
    return this.#statsConnection.stats();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async stop(): Promise<void> {
    for (const child of this.#spawned) child.kill('SIGKILL');
    await this.runtime.stop(0);
    await this.#close();
  }

  async #close(): Promise<void> {
    this.#statsConnection?.close();
    await this.scheduler.close();
    await this.#gpuHost.stop();
    await this.redis.stop();
  }
}
