import { randomUUID } from 'node:crypto';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Artifact, CoreModule } from '../build/index.ts';
import { asPlan, type Plan } from '../lowering/plan.ts';
import { planInChild } from './planner.ts';

/** A program that this process has compiled. */
export interface LoadedProgram {
  readonly artifact: Artifact;
  /** How its core modules are linked; null when only jco's glue knows. */
  readonly plan: Plan | null;
  /** Compiled core modules by file name. */
  readonly modules: ReadonlyMap<string, WebAssembly.Module>;
  /** What the memory of one instance can grow to. */
  readonly memoryLimitBytes: number;
  /** Reading and compiling it took this long; planning is done once for an artifact, and not counted. */
  readonly loadMs: number;
}

/** Name of the recorded plan in an artifact's folder. */
const PLAN_FILE = 'plan.json';
const WASM_PAGE_BYTES = 65_536;

/** Compiled core modules by content: the JavaScript engine is the same in every JavaScript inferlet, so it is compiled once a process. */
export class ModuleCache {
  readonly #modules = new Map<string, WeakRef<WebAssembly.Module>>();
  readonly #underway = new Map<string, Promise<WebAssembly.Module>>();

  /** The compiled module of `file`, whose content has the hash `file.hash`. */
  async compile(file: CoreModule, read: () => Promise<Uint8Array>): Promise<WebAssembly.Module> {
    const known = this.#modules.get(file.hash)?.deref();
    if (known) return known;
    const running = this.#underway.get(file.hash);
    if (running) return running;
    const compiling = read()
      .then((bytes) => WebAssembly.compile(bytes))
      .then((module) => {
        this.#modules.set(file.hash, new WeakRef(module));
        return module;
      })
      .finally(() => this.#underway.delete(file.hash));
    this.#underway.set(file.hash, compiling);
    return compiling;
  }
}

/** Finds out how an artifact is linked; null when only jco's glue can run it. */
export type Planner = (artifact: Artifact) => Promise<Plan | null>;

/**
 * Reads and compiles an artifact. An artifact seen for the first time is planned, and the plan kept beside it. Throws when its files are damaged and
 * when the component traps while it is instantiated.
 */
export async function loadProgram(
  artifact: Artifact,
  cache: ModuleCache,
  planner: Planner = planInChild,
): Promise<LoadedProgram> {
  const plan = await planOf(artifact, planner);
  const from = performance.now();
  const wanted = plan ? new Set(plan.instances.map(({ module }) => module)) : null;
  const files = artifact.meta.coreModules.filter(({ file }) => wanted?.has(file) ?? true);
  const modules = await Promise.all(
    files.map(async (entry) => {
      const read = () => readFile(join(artifact.directory, entry.file));
      return [entry.file, await cache.compile(entry, read)] as const;
    }),
  );
  return {
    artifact,
    plan,
    modules: new Map(modules),
    memoryLimitBytes: memoryLimitOf(artifact, plan),
    loadMs: performance.now() - from,
  };
}

/** Of several memories of a component, the limit of the one that `run` uses. */
function memoryLimitOf({ meta }: Artifact, plan: Plan | null): number {
  const file = plan?.instances[plan.entry.memory.instance]?.module;
  const pages = meta.coreModules.find((entry) => entry.file === file)?.memoryPages[0];
  return (pages ?? meta.options.memoryPages) * WASM_PAGE_BYTES;
}

async function planOf(artifact: Artifact, planner: Planner): Promise<Plan | null> {
  const path = join(artifact.directory, PLAN_FILE);
  const known = await readFile(path, 'utf8').then(
    (text) => asPlan(parse(text)),
    () => null,
  );
  if (known) return known;
  const plan = await planner(artifact);
  if (!plan) return null;
  const temporary = `${path}.${process.pid}-${randomUUID()}`;
  await writeFile(temporary, JSON.stringify(plan))
    .then(() => rename(temporary, path))
    // Without it the next process plans again.
    .catch(() => undefined);
  return plan;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
