import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Artifact, CoreModule } from '../build/index.ts';
import type { Program } from '../lowering/instance.ts';
import { asPlan, type Plan } from '../lowering/plan.ts';
import { type JcoInstantiate, recordPlan } from '../lowering/record.ts';

/** A program that this process has compiled. */
export interface LoadedProgram extends Program {
  readonly artifact: Artifact;
  /** What the memory of one instance can grow to. */
  readonly memoryLimitBytes: number;
  /** Reading, compiling and planning it took this long. */
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

/** Reads and compiles an artifact. Throws when its files are damaged, and `UnplannableError`. */
export async function loadProgram(artifact: Artifact, cache: ModuleCache): Promise<LoadedProgram> {
  const from = performance.now();
  const files = artifact.meta.coreModules;
  const plan = await readPlan(artifact);
  const wanted = plan ? new Set(plan.instances.map(({ module }) => module)) : null;
  const modules = new Map<string, WebAssembly.Module>();
  const contents = new Map<string, Uint8Array>();
  await Promise.all(
    files.map(async (entry) => {
      if (wanted && !wanted.has(entry.file)) return;
      const read = async () => {
        const bytes = await readFile(join(artifact.directory, entry.file));
        contents.set(entry.file, bytes);
        return bytes;
      };
      // The first look at a component needs the bytes of its small modules, to see which of them do nothing.
      if (!plan) await read();
      modules.set(entry.file, await cache.compile(entry, read));
    }),
  );
  const complete = plan ?? (await makePlan(artifact, modules, contents));
  return {
    artifact,
    plan: complete,
    modules,
    memoryLimitBytes: memoryLimitOf(artifact, complete),
    loadMs: performance.now() - from,
  };
}

/** Of several memories of a component, the limit of the one that `run` uses. */
function memoryLimitOf({ meta }: Artifact, plan: Plan): number {
  const file = plan.instances[plan.entry.memory.instance]?.module;
  const pages = meta.coreModules.find((entry) => entry.file === file)?.memoryPages[0];
  return (pages ?? meta.options.memoryPages) * WASM_PAGE_BYTES;
}

async function readPlan({ directory }: Artifact): Promise<Plan | null> {
  try {
    return asPlan(JSON.parse(await readFile(join(directory, PLAN_FILE), 'utf8')));
  } catch {
    return null;
  }
}

/** Records the plan of an artifact seen for the first time, and keeps it beside the artifact. */
async function makePlan(
  artifact: Artifact,
  modules: ReadonlyMap<string, WebAssembly.Module>,
  contents: ReadonlyMap<string, Uint8Array>,
): Promise<Plan> {
  const glue = (await import(pathToFileURL(artifact.glue).href)) as { instantiate: JcoInstantiate };
  const plan = await recordPlan(
    glue.instantiate,
    [...modules].map(([name, module]) => ({ name, module, bytes: contents.get(name) ?? new Uint8Array(0) })),
  );
  const temporary = join(artifact.directory, `${PLAN_FILE}.${process.pid}`);
  await writeFile(temporary, JSON.stringify(plan))
    .then(() => rename(temporary, join(artifact.directory, PLAN_FILE)))
    // Without it the next process records it again.
    .catch(() => undefined);
  return plan;
}
