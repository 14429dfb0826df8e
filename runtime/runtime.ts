import { join } from 'node:path';
import { type GpuHostAddress, GpuHostConnections } from '#gpu-host/protocol/connections.ts';
import type { GpuHostStats } from '#gpu-host/protocol/host.ts';
import type { PrivateHost } from '#scheduler/addresses/reach.ts';
import { DEFAULT_RESERVE } from '#scheduler/admission/job.ts';
import type { BuildReply, BuildRequest } from '#scheduler/builds/builds.ts';
import { resolveGrants } from '#scheduler/functions/grants.ts';
import { manifestModels } from '#scheduler/functions/manifest.ts';
import { isScript, readScriptFile } from '#scheduler/functions/script-file.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { LinkSecurity } from '#scheduler/links/security.ts';
import { LiveServer } from '#scheduler/live/server.ts';
import { MACHINE_LEASE_MS } from '#scheduler/machines/lease.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import { placementKey } from '#scheduler/policies/placement.ts';
import type { PlacementPolicy } from '#scheduler/runtimes/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { CONTRACT } from '#wit/contract.ts';
import { world } from '#wit/generated/world.ts';
import { ArtifactCollector, artifactWanted } from './artifact-collector.ts';
import { LOADING as BUILD } from './build/child.ts';
import { SharedThread } from './channel/shared-thread.ts';
import { coreShares } from './fleet/core-watch.ts';
import { Fleet } from './fleet/fleet.ts';
import type { FleetPolicy } from './fleet/policy.ts';
import { LOADING as SANDBOX, startSandbox } from './fleet/process.ts';
import { GrammarService } from './grammar/service.ts';
import { Draining, describeHosts, followHosts, type HostSource } from './host/device/gpu-hosts.ts';
import { ModelLoads } from './host/device/model-loads.ts';
import { Models } from './host/device/models.ts';
import type { DurableCopies } from './host/memory/durable-copies.ts';
import { SharedNames } from './host/memory/shared-names.ts';
import { StoreQueues } from './host/services/ask.ts';
import { HttpClient } from './host/services/http-client.ts';
import { Indexes } from './host/services/indexes.ts';
import { variablesOf } from './host/session/environment.ts';
import { inferletBytes } from './host/session/holdings.ts';
import { hostTable } from './host/table.ts';
import { ImageService } from './images/service.ts';
import { DEFAULT_LAG_MS, DEFAULT_LEAST, keepPace, Pace } from './lifecycle/pace.ts';
import { InvocationRunner } from './lifecycle/runner.ts';
import { tokenQuota } from './lifecycle/usage.ts';
import { openArtifactsDirectory } from './permissions.ts';
import { LOADING as EXAMINATION } from './pool/examine.ts';
import { FunctionLauncher } from './pool/launcher.ts';
import { LOADING as EVALUATION } from './pool/scripts.ts';
import { Service } from './pool/service.ts';
import {
  type Isolation,
  type Layers,
  layersFor,
  openCodeCache,
  openKernelShares,
  type Probe,
  type ProgramCode,
  probeMachine,
} from './sandboxes/index.ts';
import { type Instruments, RunObserver } from './telemetry/run-observer.ts';
import { TextService } from './texts/service.ts';

export interface RuntimeOptions {
  /** Stays the same over restarts: a new runtime fails the invocations that a predecessor of the same name left unfinished. */
  readonly name: string;
  readonly scheduler: Scheduler;
  /** The runtime's machine, whose gateways reach the live socket. */
  readonly machine?: string;
  /** True when other machines may share the Redis. While no GPU host is connected, the runtime then leaves invocations to the other runtimes. */
  readonly sharesWork?: boolean;
  readonly gpuHosts: readonly GpuHostAddress[];
  /** Calls back with the GPU hosts whenever they may have changed. Resolves to a function that ends these calls. */
  readonly followGpuHosts?: (onHostsChange: (hosts: readonly GpuHostAddress[]) => void) => Promise<() => void>;
  /** Selects the GPU host of an invocation when several have a model; `tenant` by default, so that a tenant's saved contexts are found. */
  readonly placement?: PlacementPolicy;
  readonly artifactsDirectory: string;
  /** Socket on which the runtime shows events before they are in the log; without it, events are written at once and published. */
  readonly liveSocket?: string;
  /** Socket of the machine's index host; without it, calls of indexes fail. */
  readonly indexSocket?: string;
  /** Copies of names in the directory that machines share; without it, no name can be made durable. */
  readonly durable?: DurableCopies | undefined;
  /** `host:port` on which the runtime shows events to gateways of other machines, and the certificates for these connections. */
  readonly liveAt?: { readonly address: string; readonly security: LinkSecurity | undefined } | undefined;
  /** Maximum invocations at once; fewer while their work fills the thread. */
  readonly concurrency: number;
  readonly sandboxes: SandboxSettings;
  /** Confinement of sandboxes, and of the processes of builds and examinations; `auto` by default. */
  readonly isolation?: Isolation;
  /** The confinement tools of this machine; probed by default. */
  readonly probe?: Probe;
  /** Maximum components built at once; 1 by default. */
  readonly builds?: number;
  /** Maximum memory of the instances of all invocations together, MiB; admission enforces it. Unlimited when absent. */
  readonly memoryMb?: number;
  /** Limits of a function whose manifest sets none. */
  readonly limits: InvocationLimits;
  readonly overcommit?: number;
  /** Part of slots and pages reserved for tenants that hold little; `DEFAULT_RESERVE` by default. */
  readonly reserve?: number;
  /** Hosts with private addresses that functions may be granted; none by default. */
  readonly privateHosts?: readonly PrivateHost[];
  /** Hosts of images that the operator allows. */
  readonly imageHosts?: readonly string[];
  /** Longest wait for the first GPU host at the start; 300 s by default. The other hosts may connect later. */
  readonly gpuHostDeadlineMs?: number;
  /** Meter and tracer of the runs; without a tracer, runs are only measured. */
  readonly instruments?: Instruments;
  readonly log: Logger;
}

/** The sandboxes of a runtime. */
export interface SandboxSettings extends FleetPolicy {
  /** Memory that the guests of one sandbox may touch together. */
  readonly memoryMb: number;
  /** Part of `memoryMb` that ready instances may take. */
  readonly poolMb: number;
  /** See `SandboxOptions.main`. */
  readonly main?: string;
}

export interface Runtime {
  /** Identifies this life of the runtime. */
  readonly id: string;
  readonly models: Models;
  readonly fleet: Fleet;
  readonly launcher: FunctionLauncher;
  /** Confinement of the processes that get untrusted bytes. */
  readonly layers: ProgramLayers;
  /** Number of invocations that run now, children included. */
  readonly running: number;
  /** Counters of the GPU hosts that answer. */
  gpuHostStats(): Promise<readonly { readonly name: string; readonly stats: GpuHostStats }[]>;
  /** Takes no more work, waits up to `drainMs` for running invocations, stops the remaining ones, and closes everything. */
  stop(drainMs: number): Promise<void>;
}

const GPU_HOST_DEADLINE_MS = 300_000;

/** Starts a runtime, which takes invocations and builds. @throws IsolationError when this machine confines less than `isolation` demands */
export async function startRuntime(options: RuntimeOptions): Promise<Runtime> {
  const { scheduler, log, limits } = options;
  const confined = layersFor(options.isolation ?? 'auto', options.probe ?? (await probeMachine()));
  const shares = await openKernelShares();
  const { groups, active } = shares;
  const stopping = new AbortController();
  const layersWithGroups: Layers = { ...confined, ...(groups && { groups }) };
  const { layers, filled } = withCompiledCode(layersWithGroups, stopping.signal, log);
  const artifactsDirectory = openArtifactsDirectory(options.artifactsDirectory);
  const draining = new Draining();
  draining.set(await scheduler.drains.names());
  const live =
    options.liveSocket === undefined
      ? undefined
      : new LiveServer({ onRefused: (why) => log.warn({ why }, 'refused a connection for live events') });
  if (options.liveSocket !== undefined) await live?.listen(options.liveSocket);
  if (options.liveAt) await live?.listen(options.liveAt.address, options.liveAt.security);
  // Register first, so that a predecessor's unfinished invocations fail at once, however long a GPU host takes to load.
  const lease = await scheduler.runtimes.acquire({
    name: options.name,
    contract: CONTRACT,
    slots: options.concurrency,
    pid: process.pid,
    ...(options.machine !== undefined && { machine: options.machine }),
    overcommit: options.overcommit ?? 1,
    reserve: options.reserve ?? DEFAULT_RESERVE,
    ...(options.memoryMb !== undefined && { memoryMb: options.memoryMb }),
    ...(options.placement && { placement: options.placement }),
    isolation: {
      layers: layersWithGroups.isolation,
      ...(layersWithGroups.notice !== null && { notice: layersWithGroups.notice }),
    },
    limits: active,
    ...(options.liveSocket !== undefined && { live: options.liveSocket }),
    ...(options.liveAt && { liveAt: options.liveAt.address }),
    gpuHosts: describeHosts(options.gpuHosts.map(notYetThere), draining),
  });
  if (live) scheduler.live.serve(lease.id, live);
  const deadlineMs = options.gpuHostDeadlineMs ?? GPU_HOST_DEADLINE_MS;
  const hosts = new GpuHostConnections(options.gpuHosts, {
    keptMs: MACHINE_LEASE_MS,
    onRefused: (why) => log.warn({ why }, 'a GPU host cannot be used'),
  });
  const stopFollowingRegistry = await options.followGpuHosts?.((changed) => hosts.set(changed));
  try {
    await hosts.ready({ deadlineMs });
  } catch (error) {
    stopping.abort();
    stopFollowingRegistry?.();
    hosts.close();
    coreShares(shares)?.close();
    await lease
      .release()
      .catch((error: unknown) => log.warn({ error }, 'the lease of this runtime could not be released'));
    live?.abandon();
    throw error;
  }
  const grammars = new GrammarService();
  const images = new ImageService();
  const texts = new TextService();
  const indexes = new Indexes({
    socket: options.indexSocket ?? null,
    sums: scheduler.indexBytes,
    machine: options.sharesWork === true ? (options.machine ?? null) : null,
  });
  const models = new Models(hosts, grammars, log, draining);
  const describe = async () => {
    await models.readTokenizers();
    await lease.describe({
      models: models.offered(),
      encoders: models.offeredEncoders(),
      gpuHosts: describeHosts(hosts.list, draining),
    });
  };
  await describe();
  const { memoryMb, poolMb, main, ...policy } = options.sandboxes;
  const thread = new SharedThread();
  const fleet = new Fleet({
    policy,
    memoryMb,
    start: (events, background) =>
      startSandbox({ layers: layers.sandbox, host: hostTable, thread, memoryMb, poolMb, main }, events, background),
    cores: coreShares(shares),
    tokenizers: () => models.granted([]),
    deviceBusy: () => hosts.list.some(({ isBusy }) => isBusy),
    onLoss: async (invocations, alone) => {
      await Promise.all(invocations.map((id) => scheduler.quarantine.noteLoss(id, alone)));
    },
    log,
  });
  const launcher = new FunctionLauncher({
    fleet,
    store: artifactsDirectory,
    layers,
    functionOf: (tenant, name, version) => scheduler.functions.runnable(tenant, name, version),
    componentOf: (hash) => scheduler.blobs.get(hash),
  });
  const engine = await launcher.engines.installed();
  if (engine) await lease.describe({ engine: engine.hash });
  else log.warn({}, 'this installation has no engine, which `pie up` makes: no script can be deployed here');
  const observer = options.instruments && new RunObserver(options.instruments);
  const runner = new InvocationRunner({
    ...(observer && { observer }),
    invocations: scheduler.invocations,
    inbox: scheduler.inbox,
    events: scheduler.events,
    files: scheduler.files,
    questions: scheduler.questions,
    jobs: {
      functionOf: async (parent, name, reference) => {
        const found = await scheduler.functions.resolve(parent.tenant, name, reference);
        // A running invocation may launch its own function even after the function was removed.
        const isOwn = name === parent.function && (reference ?? parent.version) === parent.version;
        return found ?? (isOwn ? launcher.function(parent.tenant, parent.function, parent.version) : null);
      },
      texts,
      clock: scheduler.store.clock,
      limits,
    },
    launcher,
    live,
    runtimeId: lease.id,
    modelsOf: async (job, family) => {
      const version = await launcher.function(job.tenant, job.function, job.version);
      family.placedAtMs ??= performance.now();
      const key = placementKey(options.placement, job, family.root);
      const names = version ? manifestModels(version.manifest) : [];
      return {
        models: await models.granted(names, key, family.placedAtMs),
        encoders: models.encoders(names, key, family.placedAtMs),
      };
    },
    grantsOf: async (job) => {
      const version = await launcher.function(job.tenant, job.function, job.version);
      return resolveGrants(version?.manifest.grants);
    },
    variablesOf: async (job) => variablesOf(await launcher.function(job.tenant, job.function, job.version), scheduler),
    services: {
      keyValues: scheduler.keyValues,
      messaging: scheduler.messaging,
      storeQueues: new StoreQueues(),
      bytes: inferletBytes(),
      indexes,
      names: new SharedNames(scheduler.nameOwners, hosts, options.durable),
      http: new HttpClient({
        version: world.version,
        privateHosts: options.privateHosts ?? [],
        imageHosts: options.imageHosts,
      }),
      images,
      texts,
    },
    observePeak: (job, peak) => scheduler.admission.observe(job, peak),
    tokenQuota: (job) => tokenQuota(scheduler.quotas, job),
    ends: scheduler.ends,
    log,
  });

  const worker = scheduler.createWorker({
    lease,
    slots: options.concurrency,
    begins: { most: () => runner.beginsAllowed, showsOwnEvents: live !== undefined },
    run: (job, signal, begun) => runner.run(job, signal, begun),
  });
  const running = () => worker.running + runner.children;
  const stopFollowing = await followHosts({
    hosts,
    draining,
    drains: scheduler.drains,
    machine: options.machine,
    worker,
    sharesWork: options.sharesWork ?? false,
    describe,
    log,
  });
  const loads = new ModelLoads(hosts, scheduler.store.clock);
  lease.reportLoad(() => {
    const { current } = loads;
    return { running: running(), gpuHosts: runner.served, ...current };
  });
  const stopCancels = await scheduler.control.onCancel(lease.id, (id, reason) => runner.cancelChild(id, reason));
  const builds = scheduler.createBuildWorker({
    runtimeId: lease.id,
    concurrency: options.builds ?? 1,
    build: (request, signal) => build(launcher, options.sandboxes, scheduler, request, signal),
  });
  const pace = new Pace({ most: options.concurrency, least: DEFAULT_LEAST, lagMs: DEFAULT_LAG_MS });
  observer?.watch(() => ({
    running: running(),
    children: runner.children,
    slots: options.concurrency,
    pace: pace.limit,
    readyInstances: fleet.readyInstances,
  }));
  scheduler.reaper.start();
  await worker.start();
  const endPace = keepPace(pace, {
    running: () => worker.running,
    tell: (limit) => lease.describe({ pace: limit }),
    log,
  });
  builds.start();
  const collector = new ArtifactCollector({
    store: artifactsDirectory,
    isWanted: artifactWanted(scheduler, limits),
    log,
  });
  collector.start();
  // Load every tokenizer before the runtime counts as ready.
  const loaded = await models.granted([]);
  void texts.warm([...loaded.values()].flatMap(({ tokenizer, summary }) => (tokenizer ? [summary.directory] : [])));
  const service = new Service({ scheduler, launcher, fleet, limits, log });
  await service.start();

  return {
    id: lease.id,
    models,
    fleet,
    launcher,
    layers,
    get running() {
      return running();
    },
    async gpuHostStats() {
      const read = await Promise.all(
        hosts.list.map(async (host) => ({ name: host.name, stats: await host.stats().catch(() => null) })),
      );
      return read.flatMap(({ name, stats }) => (stats ? [{ name, stats }] : []));
    },
    async stop(drainMs) {
      stopping.abort();
      service.close();
      await builds.close();
      await collector.stop();
      endPace();
      await worker.drain(drainMs);
      stopCancels();
      stopFollowing();
      stopFollowingRegistry?.();
      await fleet.close();
      hosts.close();
      await grammars.close();
      await images.close();
      await texts.close();
      await filled;
      indexes.close();
      await lease.release();
      live?.abandon();
    },
  };
}

/** The description of a GPU host that has not connected yet. */
const notYetThere = ({ name }: GpuHostAddress): HostSource => ({
  name,
  connected: false,
  connectedAt: undefined,
  lostAt: undefined,
  hostId: undefined,
  models: [],
});

/** Handles a build request of the gateway. */
async function build(
  launcher: FunctionLauncher,
  { poolMb }: SandboxSettings,
  scheduler: Scheduler,
  request: BuildRequest,
  signal: AbortSignal,
): Promise<BuildReply> {
  const component = await scheduler.blobs.get(request.componentHash);
  if (!component) {
    return {
      ok: false,
      code: 'build-failed',
      message: 'The component was no longer stored when its build began.',
      hint: 'Deploy it again.',
    };
  }
  const outcome = await launcher.build(component, request.memoryMb, signal);
  if (!outcome.ok) return { ok: false, code: outcome.code, message: outcome.message, hint: outcome.hint };
  if (isScript(component)) await storeEngine(launcher, scheduler, component);
  return { ok: true, artifact: { ...outcome.report, poolBytes: poolMb * 2 ** 20 } };
}

/** Stores the engine of a script, unless it is stored: the version that is registered next keeps it. */
async function storeEngine({ engines }: FunctionLauncher, { blobs }: Scheduler, script: Uint8Array): Promise<void> {
  const { engine } = readScriptFile(script).header;
  const installed = await engines.installed();
  if (installed?.hash === engine) await blobs.putEngine(installed.component);
}

/** Layers of isolation for each confined program that a runtime starts, each with a cache of the program's compiled code. */
export interface ProgramLayers {
  readonly sandbox: Layers;
  readonly build: Layers;
  readonly examination: Layers;
  readonly evaluation: Layers;
}

export interface CompiledCode {
  readonly layers: ProgramLayers;
  /** Resolves once the runs that fill the caches have ended. */
  readonly filled: Promise<unknown>;
}

/**
 * Returns the layers for each confined program, with a code cache inside this process's compile cache. Background runs of the programs fill the
 * caches; until then the programs take longer to start. In a process without a compile cache, the layers get no code cache.
 *
 * @param signal ends the background runs
 */
export function withCompiledCode(layers: Layers, signal: AbortSignal, log: Logger): CompiledCode {
  const compileCache = process.env.NODE_COMPILE_CACHE;
  const fills: Promise<void>[] = [];
  const withCode = (name: string, code: ProgramCode): Layers => {
    const cache = compileCache ? openCodeCache({ folder: join(compileCache, name), code, layers, signal, log }) : null;
    if (cache === null) return layers;
    fills.push(cache.filled);
    return { ...layers, codeCache: cache.directory };
  };
  const programs = {
    sandbox: withCode('sandboxes', SANDBOX),
    build: withCode('builds', BUILD),
    examination: withCode('examinations', EXAMINATION),
    evaluation: withCode('evaluations', EVALUATION),
  };
  return { layers: programs, filled: Promise.all(fills) };
}
