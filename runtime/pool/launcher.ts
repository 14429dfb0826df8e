import { isScript, readScriptFile } from '#scheduler/functions/script-file.ts';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';
import { StoreError } from '#scheduler/store/errors.ts';
import { type Artifact, artifactHashOf, type BuildFailure, buildArtifact, readArtifact } from '../build/index.ts';
import { MEMORY_PAGE_BYTES } from '../build/wasm/limits.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Prepared, StoredProgram } from '../fleet/sandbox.ts';
import { LaunchError, type Launched, type Launcher, type LaunchRequest } from '../lifecycle/launch.ts';
import { MAX_KEPT_BYTES } from '../lowering/instance-state.ts';
import { UnplannableError } from '../lowering/record.ts';
import type { Layers } from '../sandboxes/index.ts';
import { ModuleFiles, readProgram } from './artifacts.ts';
import { type Engine, Engines } from './engines.ts';
import { examineArtifact, keptStarts } from './examine.ts';
import { evaluateInChild, placedBy, readHeap, readScriptArtifact, type ScriptArtifact } from './scripts.ts';

export interface FunctionLauncherOptions {
  readonly fleet: Fleet;
  /** Directory of artifacts. */
  readonly store: string;
  readonly functionOf: (tenant: string, name: string, version: string) => Promise<FunctionVersion | null>;
  /** A component's bytes; null when they are no longer stored. */
  readonly componentOf: (hash: string) => Promise<Uint8Array | null>;
  /** Layers that confine the building and examining processes; the strongest layers of this machine by default. */
  readonly layers?: { readonly build: Layers; readonly examination: Layers; readonly evaluation: Layers };
}

/** The parts of a version that decide its program. */
type Content = Pick<FunctionVersion, 'componentHash' | 'engine'>;

/** Report of a build: times in ms, sizes in bytes; see `BuildReply` of the scheduler. */
export type BuildReport = Readonly<Record<string, string | number | boolean>>;

interface Loaded {
  readonly program: StoredProgram;
  readonly buildMs: number;
}

/** Maximum number of programs in memory; the one whose last use is longest ago leaves first. */
const MAX_PROGRAMS = 512;
/** Bound on function versions in memory. Versions are immutable, so an entry never becomes stale. */
const MAX_FUNCTIONS = 4096;
const PAGES_PER_MEGABYTE = 16;

/** Number of 64 KiB pages that a limit in megabytes allows. */
export const memoryPagesOf = (memoryMb: number): number => memoryMb * PAGES_PER_MEGABYTE;

/** Launches functions: reads or builds the artifact, and prepares an instance in the tenant's sandbox. */
export class FunctionLauncher implements Launcher {
  readonly engines: Engines;
  readonly #options: FunctionLauncherOptions;
  readonly #modules = new ModuleFiles();
  readonly #programs = new Map<string, Promise<Loaded>>();
  readonly #functions = new Map<string, Promise<FunctionVersion | null>>();

  constructor(options: FunctionLauncherOptions) {
    this.#options = options;
    const { store, componentOf, layers } = options;
    this.engines = new Engines({ store, componentOf, layers });
  }

  /** Returns a function version; null when there is none. */
  function(tenant: string, name: string, version: string): Promise<FunctionVersion | null> {
    const key = `${tenant}/${name}@${version}`;
    const known = this.#functions.get(key);
    if (known) return known;
    const reading = this.#options.functionOf(tenant, name, version);
    remember(this.#functions, key, reading, MAX_FUNCTIONS);
    reading.then(
      (found) => found ?? this.#functions.delete(key),
      () => this.#functions.delete(key),
    );
    return reading;
  }

  async launch(request: LaunchRequest): Promise<Launched> {
    const found = await this.#find(request);
    const isLoaded = this.#programs.has(programKey(found.componentHash, request.memoryMb));
    const { program, buildMs } = await this.#load(found, request.memoryMb).catch(notLaunchable);
    const { run, ready, compileMs, instantiateMs } = await this.#prepare(request, program);
    return {
      run,
      coldStart: !ready,
      timings: { buildMs: isLoaded ? 0 : buildMs, compileMs, instantiateMs },
      memoryLimitBytes: program.memoryLimitBytes,
      memoryCanGrow: program.memoryCanGrow,
      placed: program.script?.placed,
    };
  }

  /**
   * Prepares an instance in a sandbox of the tenant: in one that the tenant's invocations share or, with `alone`, in one that serves only this run.
   * Tries a second time if a shared sandbox has died. @throws LaunchError
   */
  async #prepare(request: LaunchRequest, program: StoredProgram): Promise<Prepared> {
    const { fleet } = this.#options;
    const { tenant, invocation, alone = false, beside } = request;
    fleet.learn(tenant, program);
    const sandbox = await (alone ? fleet.alone(tenant) : fleet.of(tenant, beside));
    try {
      return await sandbox.prepare(program, invocation);
    } catch (error) {
      if (sandbox.alone || sandbox.alive || !(error instanceof LaunchError) || error.code !== 'runtime-lost')
        throw error;
      return (await fleet.of(tenant, beside)).prepare(program, invocation);
    }
  }

  /** Reads a version's program before its first launch. */
  async read(version: Content & Pick<FunctionVersion, 'tenant'>, memoryMb: number): Promise<StoredProgram> {
    const { program } = await this.#load(version, memoryMb);
    this.#options.fleet.learn(version.tenant, program);
    return program;
  }

  /** Builds a component, or evaluates a script, for the gateway, and loads its program for the first launch. Returns a report for the deployer. */
  async build(
    component: Uint8Array,
    memoryMb: number,
    signal: AbortSignal,
  ): Promise<BuildFailure | { readonly ok: true; readonly report: BuildReport }> {
    if (isScript(component)) return this.#buildScript(component, memoryMb, signal);
    const { store, layers } = this.#options;
    const memoryPages = memoryPagesOf(memoryMb);
    const outcome = await buildArtifact(component, { store, memoryPages, layers: layers?.build, signal });
    if (!outcome.ok) return outcome;
    const { artifact, cached, timings } = outcome;
    try {
      await this.#load({ componentHash: artifact.meta.component.hash }, memoryMb);
      // The artifact's folder may have the plan without the start times.
      const starts = (await keptStarts(artifact)) ?? (await this.#examine(artifact)).starts;
      const { component: source, coreModules, timings: steps } = artifact.meta;
      const moduleBytes = coreModules.reduce((sum, { bytes }) => sum + bytes, 0);
      const report = {
        hash: artifact.hash,
        cached,
        buildMs: timings.totalMs,
        ...steps,
        componentBytes: source.bytes,
        moduleBytes,
        ...starts,
      };
      return { ok: true, report };
    } catch (error) {
      if (error instanceof UnplannableError) return unsupported(error);
      return {
        ok: false,
        code: 'build-failed',
        message: `The component cannot be instantiated: ${textForTenant(error)}`,
        hint: 'It must not trap, block or compute for long in its start function; a C or Rust program must be built as a reactor, without WASI.',
      };
    }
  }

  async #buildScript(
    script: Uint8Array,
    memoryMb: number,
    signal: AbortSignal,
  ): Promise<BuildFailure | { readonly ok: true; readonly report: BuildReport }> {
    const { engine: engineHash } = readScriptFile(script).header;
    if (engineHash === null) throw new TypeError('a script without an engine came to a build');
    let engine: Engine;
    try {
      engine = await this.engines.get(engineHash);
    } catch (error) {
      if (!(error instanceof LaunchError)) throw error;
      return { ok: false, code: 'build-failed', message: error.message, hint: 'Deploy the source again.' };
    }
    const outcome = await evaluateInChild(engine, script, {
      store: this.#options.store,
      layers: this.#options.layers?.evaluation,
      signal,
    });
    if (!outcome.ok) return outcome;
    const { artifact, cached, totalMs } = outcome;
    const { hash, component, heap, placesBytes, starts, evaluateMs } = artifact.meta;
    const fault = heapFault(artifact, memoryMb);
    if (fault) return fault;
    await this.#load({ componentHash: component.hash, engine: engineHash }, memoryMb);
    const moduleBytes = heap.bytes + placesBytes;
    return {
      ok: true,
      report: {
        hash,
        cached,
        buildMs: totalMs,
        evaluateMs,
        componentBytes: component.bytes,
        moduleBytes,
        ...starts,
        isReusable: heap.pages * MEMORY_PAGE_BYTES <= MAX_KEPT_BYTES,
      },
    };
  }

  async #find({ tenant, function: name, version }: LaunchRequest): Promise<FunctionVersion> {
    let found: FunctionVersion | null;
    try {
      found = await this.function(tenant, name, version);
    } catch (cause) {
      throw new LaunchError('artifact-unavailable', `The deployed version of ${name} could not be read.`, { cause });
    }
    if (!found) throw new LaunchError('artifact-unavailable', `${name}@${version} is no longer deployed.`);
    return found;
  }

  #load(content: Content, memoryMb: number): Promise<Loaded> {
    const key = programKey(content.componentHash, memoryMb);
    const known = this.#programs.get(key);
    if (known) {
      remember(this.#programs, key, known, MAX_PROGRAMS);
      return known;
    }
    const { componentHash, engine } = content;
    const loading =
      engine === undefined ? this.#loadNew(componentHash, memoryMb) : this.#loadScript(componentHash, engine, memoryMb);
    remember(this.#programs, key, loading, MAX_PROGRAMS);
    loading.catch(() => this.#programs.delete(key));
    return loading;
  }

  async #loadNew(componentHash: string, memoryMb: number): Promise<Loaded> {
    const { store, layers } = this.#options;
    const memoryPages = memoryPagesOf(memoryMb);
    const key = programKey(componentHash, memoryMb);
    const existing = await readArtifact(store, artifactHashOf(componentHash, { memoryPages }));
    if (existing) return { program: await this.#read(key, existing), buildMs: 0 };
    const from = performance.now();
    const component = await this.#component(componentHash);
    const outcome = await buildArtifact(component, { store, memoryPages, layers: layers?.build });
    if (!outcome.ok) throw new LaunchError('artifact-unavailable', `${outcome.message} ${outcome.hint}`);
    const buildMs = performance.now() - from;
    return { program: await this.#read(key, outcome.artifact), buildMs };
  }

  async #loadScript(componentHash: string, engineHash: string, memoryMb: number): Promise<Loaded> {
    const { store, layers } = this.#options;
    const engine = await this.engines.get(engineHash);
    const key = programKey(componentHash, memoryMb);
    const existing = await readScriptArtifact(store, componentHash);
    if (existing) return { program: await scriptProgram(key, engine, existing, memoryMb), buildMs: 0 };
    const from = performance.now();
    const script = await this.#component(componentHash);
    const outcome = await evaluateInChild(engine, script, { store, layers: layers?.evaluation });
    if (!outcome.ok) throw new LaunchError('artifact-unavailable', `${outcome.message} ${outcome.hint}`);
    const buildMs = performance.now() - from;
    return { program: await scriptProgram(key, engine, outcome.artifact, memoryMb), buildMs };
  }

  #examine(artifact: Artifact): ReturnType<typeof examineArtifact> {
    return examineArtifact(artifact, this.#options.layers?.examination);
  }

  #read(key: string, artifact: Artifact): Promise<StoredProgram> {
    return readProgram(key, artifact, this.#modules, async () => (await this.#examine(artifact)).plan);
  }

  async #component(hash: string): Promise<Uint8Array> {
    let component: Uint8Array | null;
    try {
      component = await this.#options.componentOf(hash);
    } catch (cause) {
      throw new LaunchError(
        'artifact-unavailable',
        `The component could not be fetched: ${textForTenant(StoreError.from(cause))}`,
        { cause },
      );
    }
    if (!component)
      throw new LaunchError('artifact-unavailable', 'The component is no longer stored; deploy the function again.');
    return component;
  }
}

/** The program of a script: its engine's modules and plan, a memory with the function's limit, and its heap. */
async function scriptProgram(
  key: string,
  { hash, plan, modules, memoryPages }: Engine,
  artifact: ScriptArtifact,
  memoryMb: number,
): Promise<StoredProgram> {
  const fault = heapFault(artifact, memoryMb);
  if (fault) throw new LaunchError('artifact-unavailable', `${fault.message} ${fault.hint}`);
  const maximum = memoryPagesOf(memoryMb);
  return {
    key,
    plan,
    modules,
    script: {
      engine: hash,
      memory: { minimum: memoryPages, maximum },
      heap: await readHeap(artifact),
      placed: placedBy(artifact),
    },
    memoryLimitBytes: maximum * MEMORY_PAGE_BYTES,
    memoryCanGrow: artifact.meta.heap.pages < maximum,
  };
}

/** The refusal of a script whose instances need more memory at their start than their limit; null for others. */
function heapFault({ meta }: ScriptArtifact, memoryMb: number): BuildFailure | null {
  const { pages } = meta.heap;
  if (pages <= memoryPagesOf(memoryMb)) return null;
  return {
    ok: false,
    code: 'build-failed',
    message: `The module needs ${Math.ceil(pages / PAGES_PER_MEGABYTE)} MiB of memory after it has loaded; the limit is ${memoryMb} MiB.`,
    hint: 'Raise `limits.memoryMb` in pie.json, or keep less at module level.',
  };
}

/** The refusal of a component that a plan cannot describe. */
const unsupported = (reason: UnplannableError) => ({
  ok: false as const,
  code: 'unsupported-component' as const,
  message: `The component cannot be run here: ${reason.message}.`,
  hint: 'Build it as one component with one core module that exports `run`, as `pie build` does, instead of composing several.',
});

/** Throws `LaunchError` for a component that a plan cannot describe, and any other error as it is. */
function notLaunchable(cause: unknown): never {
  if (!(cause instanceof UnplannableError)) throw cause;
  const { message, hint } = unsupported(cause);
  throw new LaunchError('artifact-unavailable', `${message} ${hint}`, { cause });
}

/** Key of a program: versions with the same component and memory share it. */
export const programKey = (componentHash: string, memoryMb: number): string => `${componentHash}/${memoryMb}`;

/** Makes an entry the newest one of a map, and removes the oldest one if the map has more than `limit`. */
function remember<V>(map: Map<string, V>, key: string, value: V, limit: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > limit && oldest !== undefined) map.delete(oldest);
}
