import { pathToFileURL } from 'node:url';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { world } from '#wit/generated/world.ts';
import { type Artifact, artifactHashOf, type BuildOutcome, buildArtifact, readArtifact } from '../build/index.ts';
import { LaunchError, type Launched, type Launcher, type LaunchRequest } from '../lifecycle/launch.ts';
import type { CompiledWorld, HostTable } from '../lowering/compile.ts';
import type { Execution } from '../lowering/execution.ts';
import { instantiateGlue } from '../lowering/glue.ts';
import type { JcoInstantiate } from '../lowering/record.ts';
import type { SliceRunner } from '../lowering/slice-runner.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { type LoadedProgram, loadProgram, ModuleCache, type Planner } from './artifacts.ts';
import { type MeasuredStarts, measureStarts } from './measure.ts';
import { INSTANTIATE_CPU_MS, type InstancePool } from './pool.ts';

/** What jco's glue needs to run a component that has no plan. */
export interface GlueOptions {
  readonly compiled: CompiledWorld;
  readonly host: HostTable;
  readonly slices: SliceRunner;
}

export interface FunctionLauncherOptions {
  readonly pool: InstancePool;
  readonly glue: GlueOptions;
  /** Directory of artifacts. */
  readonly store: string;
  readonly functionOf: (tenant: string, name: string, version: string) => Promise<FunctionVersion | null>;
  /** A component's bytes, null when they are stored no more. */
  readonly componentOf: (hash: string) => Promise<Uint8Array | null>;
  /** Plans artifacts seen for the first time; in a child process by default. */
  readonly planner?: Planner;
}

interface Loaded {
  readonly program: LoadedProgram;
  readonly buildMs: number;
}

/** Programs kept compiled; the one not launched for longest goes first. */
const MAX_PROGRAMS = 512;
/** Functions whose manifest is kept. Versions are immutable, so nothing grows old. */
const MAX_FUNCTIONS = 4096;
const PAGES_PER_MEGABYTE = 16;

/** Pages of 64 KiB that a limit in megabytes allows. */
export const memoryPagesOf = (memoryMb: number): number => memoryMb * PAGES_PER_MEGABYTE;

/** Launches functions: artifact from disk or built, compiled once, instance from the pool. */
export class FunctionLauncher implements Launcher {
  readonly #options: FunctionLauncherOptions;
  readonly #modules = new ModuleCache();
  readonly #programs = new Map<string, Promise<Loaded>>();
  readonly #functions = new Map<string, Promise<FunctionVersion | null>>();

  constructor(options: FunctionLauncherOptions) {
    this.#options = options;
  }

  /** What a function's manifest says; null when there is no such version. */
  function(tenant: string, name: string, version: string): Promise<FunctionVersion | null> {
    const key = `${tenant}/${name}@${version}`;
    const known = this.#functions.get(key);
    if (known) return known;
    const asked = this.#options.functionOf(tenant, name, version);
    remember(this.#functions, key, asked, MAX_FUNCTIONS);
    asked.then(
      (found) => found ?? this.#functions.delete(key),
      () => this.#functions.delete(key),
    );
    return asked;
  }

  async launch(request: LaunchRequest): Promise<Launched> {
    const found = await this.#find(request);
    const key = programKey(found.componentHash, request.memoryMb);
    const warm = this.#programs.has(key);
    const from = performance.now();
    const { program, buildMs } = await this.#load(found.componentHash, request.memoryMb);
    const loadMs = warm ? 0 : performance.now() - from;
    try {
      this.#admit(key, program);
      const { execution, instantiateMs, ready } = program.plan
        ? this.#options.pool.take(key)
        : await this.#throughGlue(program);
      return {
        execution,
        coldStart: !ready,
        timings: { buildMs: warm ? 0 : buildMs, compileMs: warm ? 0 : Math.max(0, loadMs - buildMs), instantiateMs },
        memoryLimitBytes: program.memoryLimitBytes,
      };
    } catch (cause) {
      const reason =
        cause instanceof GuestTrap ? cause.message : `${cause instanceof Error ? cause.message : String(cause)}`;
      throw new LaunchError('trap', `The inferlet trapped while it was started: ${reason}`, { cause });
    }
  }

  /** Compiles what a version runs, before anybody asks for it, so that the pool keeps instances of it ready. */
  async prepare({ componentHash }: Pick<FunctionVersion, 'componentHash'>, memoryMb: number): Promise<void> {
    const { program } = await this.#load(componentHash, memoryMb);
    this.#admit(programKey(componentHash, memoryMb), program);
  }

  /** Builds a component for the gateway, compiles what came out, so that the first launch finds it, and measures launches of it. */
  async build(
    component: Uint8Array,
    memoryMb: number,
    signal: AbortSignal,
  ): Promise<
    Extract<BuildOutcome, { ok: false }> | (Extract<BuildOutcome, { ok: true }> & { starts: MeasuredStarts })
  > {
    const { store } = this.#options;
    const outcome = await buildArtifact(component, { store, memoryPages: memoryPagesOf(memoryMb), signal });
    if (!outcome.ok) return outcome;
    try {
      const { program } = await this.#load(outcome.artifact.meta.component.hash, memoryMb);
      return { ...outcome, starts: await this.#measure(program) };
    } catch (error) {
      return {
        ok: false,
        code: 'build-failed',
        message: `The component cannot be instantiated: ${error instanceof Error ? error.message : String(error)}`,
        hint: 'It must not trap, block or compute for long in its start function; a C or Rust program must be built as a reactor, without WASI.',
      };
    }
  }

  async #measure(program: LoadedProgram): Promise<MeasuredStarts> {
    const { plan, modules, loadMs } = program;
    if (plan) return measureStarts(this.#options.pool, { plan, modules }, loadMs);
    const { instantiateMs } = await this.#throughGlue(program);
    return { coldStartMs: loadMs + instantiateMs, warmStartMs: null, instanceBytes: null };
  }

  #admit(key: string, { plan, modules }: LoadedProgram): void {
    if (plan) this.#options.pool.admit(key, { plan, modules });
  }

  /** An instance of a component that the lean lowering cannot link. None are kept ready: each holds half a megabyte of closures. */
  async #throughGlue({
    artifact,
    modules,
  }: LoadedProgram): Promise<{ execution: Execution; instantiateMs: number; ready: boolean }> {
    const { compiled, host, slices } = this.#options.glue;
    const from = performance.now();
    const { instantiate } = (await import(pathToFileURL(artifact.glue).href)) as { instantiate: JcoInstantiate };
    const options = { slices, cpuLimitMs: INSTANTIATE_CPU_MS };
    const execution = await instantiateGlue({ instantiate, modules }, world, compiled, host, options);
    return { execution, instantiateMs: performance.now() - from, ready: false };
  }

  async #find({ tenant, function: name, version }: LaunchRequest): Promise<FunctionVersion> {
    let found: FunctionVersion | null;
    try {
      found = await this.function(tenant, name, version);
    } catch (cause) {
      throw new LaunchError('artifact-unavailable', `What is deployed as ${name} could not be read.`, { cause });
    }
    if (!found) throw new LaunchError('artifact-unavailable', `${name}@${version} is deployed no more.`);
    return found;
  }

  #load(componentHash: string, memoryMb: number): Promise<Loaded> {
    const key = programKey(componentHash, memoryMb);
    const known = this.#programs.get(key);
    if (known) {
      remember(this.#programs, key, known, MAX_PROGRAMS);
      return known;
    }
    const loading = this.#loadNew(componentHash, memoryMb);
    const dropped = remember(this.#programs, key, loading, MAX_PROGRAMS);
    if (dropped !== null) this.#options.pool.forget(dropped);
    loading.catch(() => this.#programs.delete(key));
    return loading;
  }

  async #loadNew(componentHash: string, memoryMb: number): Promise<Loaded> {
    const { store } = this.#options;
    const memoryPages = memoryPagesOf(memoryMb);
    const existing = await readArtifact(store, artifactHashOf(componentHash, { memoryPages }));
    if (existing) return { program: await this.#read(existing), buildMs: 0 };
    const from = performance.now();
    const component = await this.#component(componentHash);
    const outcome = await buildArtifact(component, { store, memoryPages });
    if (!outcome.ok) throw new LaunchError('artifact-unavailable', `${outcome.message} ${outcome.hint}`);
    const buildMs = performance.now() - from;
    return { program: await this.#read(outcome.artifact), buildMs };
  }

  #read(artifact: Artifact): Promise<LoadedProgram> {
    return loadProgram(artifact, this.#modules, this.#options.planner);
  }

  async #component(hash: string): Promise<Uint8Array> {
    let component: Uint8Array | null;
    try {
      component = await this.#options.componentOf(hash);
    } catch (cause) {
      throw new LaunchError(
        'artifact-unavailable',
        `The component could not be fetched: ${StoreError.from(cause).message}`,
        { cause },
      );
    }
    if (!component)
      throw new LaunchError('artifact-unavailable', 'The component is stored no more; deploy the function again.');
    return component;
  }
}

/** What one pool of instances belongs to: versions whose component and memory are the same share it. */
export const programKey = (componentHash: string, memoryMb: number): string => `${componentHash}/${memoryMb}`;

/** Puts an entry at the young end of a bounded map; answers the key that had to go. */
function remember<V>(map: Map<string, V>, key: string, value: V, limit: number): string | null {
  map.delete(key);
  map.set(key, value);
  if (map.size <= limit) return null;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return oldest;
  }
  return null;
}
