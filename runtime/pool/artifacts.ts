import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Artifact, CoreModule } from '../build/index.ts';
import type { StoredProgram } from '../fleet/sandbox.ts';
import type { Plan } from '../lowering/plan.ts';
import { UnplannableError } from '../lowering/record.ts';
import { keptPlan } from './examine.ts';

const WASM_PAGE_BYTES = 65_536;
/** A module travels to a sandbox in one message of its channel, of 32 MiB at most. */
const MAX_MODULE_BYTES = 31 << 20;

/** Core modules by content, as long as some program holds them: the JavaScript engine is the same in every JavaScript function. */
export class ModuleFiles {
  readonly #known = new Map<string, WeakRef<Uint8Array>>();
  readonly #dropped = new FinalizationRegistry<string>((hash) => {
    if (this.#known.get(hash)?.deref() === undefined) this.#known.delete(hash);
  });

  /**
   * The bytes of `file`, read once. Throws when they have another hash: what a build process says of its output is not believed, since
   * another tenant's function would get that module under the hash of its own.
   */
  async read(directory: string, { file, hash }: CoreModule): Promise<Uint8Array> {
    const known = this.#known.get(hash)?.deref();
    if (known) return known;
    const bytes = await readFile(join(directory, file));
    if (createHash('sha256').update(bytes).digest('hex') !== hash) {
      throw new Error(`${file} of the artifact is damaged: its content has another hash`);
    }
    const first = this.#known.get(hash)?.deref();
    if (first) return first;
    this.#known.set(hash, new WeakRef(bytes));
    this.#dropped.register(bytes, hash);
    return bytes;
  }
}

/** Finds out how an artifact is linked. Throws `UnplannableError` when no plan can describe it. */
export type Planner = (artifact: Artifact) => Promise<Plan>;

/**
 * Reads an artifact; one seen for the first time is planned. Throws when its files are damaged, `UnplannableError` when no plan can
 * describe it, and when the component traps while it is instantiated for its plan.
 *
 * @param key names the program's instances.
 */
export async function readProgram(
  key: string,
  artifact: Artifact,
  modules: ModuleFiles,
  planner: Planner,
): Promise<StoredProgram> {
  const plan = (await keptPlan(artifact)) ?? (await planner(artifact));
  const wanted = new Set(plan.instances.map(({ module }) => module));
  const files = artifact.meta.coreModules.filter(({ file }) => wanted.has(file));
  const large = files.find(({ bytes }) => bytes > MAX_MODULE_BYTES);
  if (large) {
    const mib = (bytes: number) => Math.ceil(bytes / 2 ** 20);
    throw new UnplannableError(
      `one of its core modules has ${mib(large.bytes)} MiB with its fuel checks, and ${mib(MAX_MODULE_BYTES)} MiB is the limit`,
    );
  }
  return {
    key,
    plan,
    modules: await Promise.all(
      files.map(async (entry) => ({
        file: entry.file,
        hash: entry.hash,
        bytes: await modules.read(artifact.directory, entry),
      })),
    ),
    memoryLimitBytes: memoryLimitOf(artifact, plan),
  };
}

/** Of several memories of a component, the limit of the one that `run` uses. */
function memoryLimitOf({ meta }: Artifact, plan: Plan): number {
  const file = plan.instances[plan.entry.memory.instance]?.module;
  const pages = meta.coreModules.find((entry) => entry.file === file)?.memoryPages[0];
  return (pages ?? meta.options.memoryPages) * WASM_PAGE_BYTES;
}
