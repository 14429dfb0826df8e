import { mkdir } from 'node:fs/promises';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Capacity } from '#scheduler/admission/capacity.ts';
import type { InvocationJob } from '#scheduler/admission/job.ts';
import type { BuildReply, BuildRequest } from '#scheduler/builds/types.ts';
import { resolveGrants } from '#scheduler/functions/grants.ts';
import { InputChecker } from '#scheduler/functions/input-check.ts';
import { manifestModels, resolveLimits } from '#scheduler/functions/manifest.ts';
import { timeLimit } from '#scheduler/functions/vm-time-limit.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { world } from '#wit/generated/world.ts';
import { GrammarService } from './grammar/service.ts';
import { HttpClient } from './host/http/client.ts';
import { Models } from './host/models.ts';
import { hostTable } from './host/table.ts';
import { ImageService } from './images/service.ts';
import { InvocationRunner } from './lifecycle/runner.ts';
import { compileWorld, deviceBusy } from './lowering/compile.ts';
import { SliceRunner } from './lowering/slice-runner.ts';
import { FunctionLauncher } from './pool/launcher.ts';
import { InstancePool } from './pool/pool.ts';

export interface RuntimeOptions {
  /** Stays the same over restarts: a new runtime of a name fails what its predecessor left unfinished. */
  readonly name: string;
  readonly scheduler: Scheduler;
  /** Addresses of the GPU hosts. */
  readonly gpuHosts: readonly string[];
  readonly artifactsDirectory: string;
  /** Invocations that run at once. */
  readonly concurrency: number;
  readonly poolMemoryMb: number;
  /** Of a function whose manifest asks for nothing. */
  readonly limits: InvocationLimits;
  readonly overcommit?: number;
  /** Hosts with private addresses that functions may be granted; none by default. */
  readonly privateHosts?: readonly string[];
  /** Longest wait for each GPU host at the start; 300 s by default. */
  readonly gpuHostDeadlineMs?: number;
  readonly onError: (error: unknown) => void;
}

export interface Runtime {
  /** Identifies this life of the runtime. */
  readonly id: string;
  readonly models: Models;
  readonly pool: InstancePool;
  readonly launcher: FunctionLauncher;
  /** Invocations that run now, children included. */
  readonly running: number;
  /** Takes no more work, waits for what runs until the deadline, then stops it, and lets go of everything. */
  stop(drainMs: number): Promise<void>;
}

const GPU_HOST_DEADLINE_MS = 300_000;
/** Tenants' functions that are made ready at the start, before anybody asks. */
const PREPARED_TENANT = 'default';
const MAX_PREPARED = 64;
const BUILD_CONCURRENCY = 1;
/** An input may be held against its function's schema for so long when a child is launched: all inferlets of this runtime wait meanwhile. */
const INPUT_CHECK_MS = 20;

/** Starts a runtime: connects to the GPU hosts, takes over from its predecessor, and takes invocations and builds. */
export async function startRuntime(options: RuntimeOptions): Promise<Runtime> {
  const { scheduler, onError, limits } = options;
  await mkdir(options.artifactsDirectory, { recursive: true });
  // Registering first: what a predecessor left unfinished fails at once, however long a GPU host takes to load.
  const lease = await scheduler.runtimes.acquire({ name: options.name, slots: options.concurrency, pid: process.pid });
  const deadlineMs = options.gpuHostDeadlineMs ?? GPU_HOST_DEADLINE_MS;
  const connections = await Promise.all(
    options.gpuHosts.map((address) => GpuHostConnection.connect(address, { deadlineMs })),
  );
  const grammars = new GrammarService();
  const images = new ImageService();
  const models = new Models(connections, grammars, onError);
  await lease.describe({ models: models.list() });
  const compiled = compileWorld(world, hostTable);
  const slices = new SliceRunner(() => deviceBusy(compiled));

  let running: () => number = () => 0;
  const pool = new InstancePool({
    world: compiled,
    slices,
    budgetBytes: options.poolMemoryMb * 2 ** 20,
    running: () => running(),
    onError,
  });
  const launcher = new FunctionLauncher({
    pool,
    glue: { compiled, host: hostTable, slices },
    store: options.artifactsDirectory,
    functionOf: (tenant, name, version) => scheduler.functions.find(tenant, name, version),
    componentOf: (hash) => scheduler.blobs.get(hash),
  });
  let observe: (job: InvocationJob, peak: Readonly<Record<string, number>>) => void = () => undefined;
  const runner = new InvocationRunner({
    invocations: scheduler.invocations,
    inbox: scheduler.inbox,
    events: scheduler.events,
    files: scheduler.files,
    jobs: {
      // A named version never changes; which one is served may.
      functionOf: (tenant, name, version) =>
        version === undefined ? scheduler.functions.get(tenant, name) : launcher.function(tenant, name, version),
      inputs: new InputChecker(timeLimit(INPUT_CHECK_MS)),
      limits,
    },
    launcher,
    runtimeId: lease.id,
    modelsOf: async (job) => {
      const version = await launcher.function(job.tenant, job.function, job.version);
      return models.granted(version ? manifestModels(version.manifest) : []);
    },
    grantsOf: async (job) => {
      const version = await launcher.function(job.tenant, job.function, job.version);
      return resolveGrants(version?.manifest.grants);
    },
    services: {
      keyValues: scheduler.keyValues,
      messaging: scheduler.messaging,
      http: new HttpClient({ version: world.version, privateHosts: options.privateHosts ?? [] }),
      images,
    },
    slices,
    observePages: (job, peak) => observe(job, peak),
    onError,
  });

  const capacity = (): Capacity => ({
    slots: options.concurrency,
    pages: Object.fromEntries(models.list().map(({ name, pageCount }) => [name, pageCount])),
    ...(options.overcommit !== undefined && { overcommit: options.overcommit }),
  });
  const worker = scheduler.createWorker({ lease, capacity: capacity(), run: (job, signal) => runner.run(job, signal) });
  running = () => worker.running + runner.children;
  lease.reportLoad(() => ({ running: running(), held: worker.held }));
  const stopCancels = await scheduler.control.onCancel(lease.id, (id, reason) => runner.cancelChild(id, reason));
  observe = (job, peak) => worker.observePages(job, peak);
  const builds = scheduler.createBuildWorker({
    concurrency: BUILD_CONCURRENCY,
    build: (request, signal) => build(launcher, scheduler, request, signal),
  });
  scheduler.reaper.start();
  await worker.start();
  builds.start();
  // Every tokenizer is loaded before the runtime counts as ready.
  await models.granted([]);
  void prepareFunctions(scheduler, launcher, limits, onError).catch(onError);

  return {
    id: lease.id,
    models,
    pool,
    launcher,
    get running() {
      return running();
    },
    async stop(drainMs) {
      await builds.close();
      await worker.drain(drainMs);
      stopCancels();
      pool.close();
      for (const connection of connections) connection.close();
      await grammars.close();
      await images.close();
      await lease.release();
    },
  };
}

/** Answers a build request of the gateway. */
async function build(
  launcher: FunctionLauncher,
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
  const { artifact, cached, timings } = outcome;
  const { component: source, coreModules, timings: steps } = artifact.meta;
  return {
    ok: true,
    artifact: {
      hash: artifact.hash,
      cached,
      buildMs: timings.totalMs,
      ...steps,
      componentBytes: source.bytes,
      moduleBytes: coreModules.reduce((sum, { bytes }) => sum + bytes, 0),
    },
  };
}

/** Compiles what is deployed and fills the pools, one function after the other, so that the first launches after a restart are warm. */
async function prepareFunctions(
  scheduler: Scheduler,
  launcher: FunctionLauncher,
  defaults: InvocationLimits,
  onError: (error: unknown) => void,
): Promise<void> {
  const deployed = await scheduler.functions.list(PREPARED_TENANT);
  for (const version of deployed.slice(0, MAX_PREPARED)) {
    const { memoryMb } = resolveLimits(version.manifest, defaults);
    // One that cannot be prepared says why at its first invocation; the others go on.
    await launcher.prepare(version, memoryMb).catch(onError);
  }
}
