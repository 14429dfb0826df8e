import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type Artifact, type CoreModule, readPlainFile } from '../build/index.ts';
import { MEMORY_PAGE_BYTES, readDefinitions } from '../build/wasm/limits.ts';
import type { StoredModule, StoredProgram } from '../fleet/sandbox.ts';
import type { Plan } from '../lowering/plan.ts';
import { UnplannableError } from '../lowering/record.ts';
import { keptPlan } from './examine.ts';

/** A module travels to a sandbox in one message of the channel. A message has at most 32 MiB, of which 1 MiB is for its head. */
const MAX_MODULE_BYTES = 31 << 20;

/**
 * Core modules by the hash of their content. A module is kept while a program holds its bytes, so that programs with
 * equal modules share them: all JavaScript functions have the same JavaScript engine.
 */
export class ModuleFiles {
  readonly #known = new Map<string, WeakRef<Uint8Array>>();
  readonly #dropped = new FinalizationRegistry<string>((hash) => {
    if (this.#known.get(hash)?.deref() === undefined) this.#known.delete(hash);
  });

  /**
   * Returns the module with this hash: the one that a program holds, or else the content of `file`. Throws when that
   * content has another hash. The build process states the hash and is not trusted: it could state the hash of another
   * tenant's module, and that tenant's functions would then get this content.
   */
  async read(directory: string, { file, hash }: CoreModule): Promise<Uint8Array> {
    const known = this.#known.get(hash)?.deref();
    if (known) return known;
    // The build also states the module's length, which is not trusted either.
    const bytes = await readPlainFile(join(directory, file), MAX_MODULE_BYTES);
    if (createHash('sha256').update(bytes).digest('hex') !== hash) {
      throw new Error(`${file} of the artifact is damaged: its content has another hash`);
    }
    const readMeanwhile = this.#known.get(hash)?.deref();
    if (readMeanwhile) return readMeanwhile;
    this.#known.set(hash, new WeakRef(bytes));
    this.#dropped.register(bytes, hash);
    return bytes;
  }
}

/** Makes the plan of an artifact. Throws `UnplannableError` when no plan can describe the artifact. */
export type Planner = (artifact: Artifact) => Promise<Plan>;

/**
 * Reads an artifact, and plans it unless its plan is stored beside it. Throws `UnplannableError` when no plan can describe the artifact, and another
 * error when its files are damaged or the component traps while the planner instantiates it.
 *
 * @param key key of the program's instances.
 */
export async function readProgram(
  key: string,
  artifact: Artifact,
  modules: ModuleFiles,
  planner: Planner,
): Promise<StoredProgram> {
  const plan = (await keptPlan(artifact)) ?? (await planner(artifact));
  const usedFiles = new Set(plan.instances.map(({ module }) => module));
  const files = artifact.meta.coreModules.filter(({ file }) => usedFiles.has(file));
  const tooLarge = files.find(({ bytes }) => bytes > MAX_MODULE_BYTES);
  if (tooLarge) {
    const mib = (bytes: number) => Math.ceil(bytes / 2 ** 20);
    throw new UnplannableError(
      `one of its core modules has ${mib(tooLarge.bytes)} MiB with its fuel checks, and ${mib(MAX_MODULE_BYTES)} MiB is the limit`,
    );
  }
  const stored = await Promise.all(
    files.map(async (entry) => ({
      file: entry.file,
      hash: entry.hash,
      bytes: await modules.read(artifact.directory, entry),
    })),
  );
  const memoryLimitBytes = memoryLimitOf(artifact, plan);
  return {
    key,
    plan,
    modules: stored,
    memoryLimitBytes,
    memoryCanGrow: startMemoryOf(stored, plan) < memoryLimitBytes,
  };
}

/** Returns the limit of all memories of the component's core instances together. */
function memoryLimitOf({ meta }: Artifact, plan: Plan): number {
  return bytesOf(plan, new Map(meta.coreModules.map(({ file, memoryPages }) => [file, memoryPages])));
}

/** Returns the size of all memories of the component's core instances together when they are made. */
function startMemoryOf(modules: readonly StoredModule[], plan: Plan): number {
  const minima = modules.map(({ file, bytes }) => {
    const { memories } = readDefinitions(bytes);
    return [file, memories.map(({ min }) => min)] as const;
  });
  return bytesOf(plan, new Map(minima));
}

/** Bytes of the memories of all core instances together. @param pages sizes of the memories that each module defines */
function bytesOf(plan: Plan, pages: ReadonlyMap<string, readonly number[]>): number {
  const sizes = plan.instances.flatMap(({ module }) => pages.get(module) ?? []);
  return sizes.reduce((sum, more) => sum + more, 0) * MEMORY_PAGE_BYTES;
}
