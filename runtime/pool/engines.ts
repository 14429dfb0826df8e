import { createHash } from 'node:crypto';
import { artifactHashOf } from '../build/artifact/artifact.ts';
import { type Artifact, buildArtifact, readArtifact } from '../build/index.ts';
import {
  ENGINE_OPTIONS,
  type InstalledEngine,
  installedArtifacts,
  installedEngine,
} from '../build/script/installed.ts';
import { importMemory, MEMORY_IMPORT, readDefinitions } from '../build/wasm/limits.ts';
import type { StoredModule } from '../fleet/sandbox.ts';
import { LaunchError } from '../lifecycle/launch.ts';
import type { Plan } from '../lowering/plan.ts';
import type { Layers } from '../sandboxes/index.ts';
import { ModuleFiles, readProgram } from './artifacts.ts';
import { examineArtifact } from './examine.ts';

/** An engine in memory. Its modules import their memory, so that scripts with different limits share them. */
export interface Engine {
  /** sha256 of the component. */
  readonly hash: string;
  /** The artifact as it was built: its modules define their memory. */
  readonly artifact: Artifact;
  readonly plan: Plan;
  readonly modules: readonly StoredModule[];
  /** Pages of a new instance's memory. */
  readonly memoryPages: number;
}

interface EnginesOptions {
  /** Directory of artifacts. */
  readonly store: string;
  /** A component's bytes; null when they are no longer stored. */
  readonly componentOf: (hash: string) => Promise<Uint8Array | null>;
  readonly layers: { readonly build: Layers; readonly examination: Layers } | undefined;
}

/** The engines of this runtime's scripts: its installation's own, and those of other releases, which versions name. */
export class Engines {
  readonly #options: EnginesOptions;
  readonly #engines = new Map<string, Promise<Engine>>();
  #installed: Promise<InstalledEngine | null> | undefined;

  constructor(options: EnginesOptions) {
    this.#options = options;
  }

  /** The engine of this installation; null when it was not made. */
  installed(): Promise<InstalledEngine | null> {
    this.#installed ??= installedEngine();
    return this.#installed;
  }

  /** Returns an engine; builds one of another release. @throws LaunchError when it is no longer stored */
  get(hash: string): Promise<Engine> {
    const known = this.#engines.get(hash);
    if (known) return known;
    const loading = this.#load(hash);
    this.#engines.set(hash, loading);
    loading.catch(() => this.#engines.delete(hash));
    return loading;
  }

  async #load(hash: string): Promise<Engine> {
    const artifact = await this.#artifact(hash);
    const planner = async () => (await examineArtifact(artifact, this.#options.layers?.examination)).plan;
    const { plan, modules } = await readProgram(hash, artifact, new ModuleFiles(), planner);
    const definer = modules.find(({ bytes }) => readDefinitions(bytes).memories.length > 0);
    if (!definer) throw new Error(`the engine ${hash} defines no memory`);
    const { bytes, minimum } = importMemory(definer.bytes);
    const changed = { file: definer.file, hash: createHash('sha256').update(bytes).digest('hex'), bytes };
    const memory = { ...MEMORY_IMPORT, source: { kind: 'memory' } } as const;
    const instances = plan.instances.map((instance) =>
      instance.module === definer.file ? { ...instance, imports: [...instance.imports, memory] } : instance,
    );
    return {
      hash,
      artifact,
      plan: { ...plan, instances },
      modules: modules.map((module) => (module === definer ? changed : module)),
      memoryPages: minimum,
    };
  }

  async #artifact(hash: string): Promise<Artifact> {
    const { store, componentOf, layers } = this.#options;
    const name = artifactHashOf(hash, ENGINE_OPTIONS);
    const existing = (await readArtifact(await installedArtifacts(), name)) ?? (await readArtifact(store, name));
    if (existing) return existing;
    const installed = await this.installed();
    const component = installed?.hash === hash ? installed.component : await componentOf(hash);
    if (!component)
      throw new LaunchError(
        'artifact-unavailable',
        'The engine of the script is no longer stored; deploy the function again.',
      );
    const outcome = await buildArtifact(component, { store, ...ENGINE_OPTIONS, layers: layers?.build });
    if (!outcome.ok) throw new LaunchError('artifact-unavailable', `${outcome.message} ${outcome.hint}`);
    return outcome.artifact;
  }
}
