import { mkdir, readFile, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { runStage } from '../child.ts';
import type { BuildFailure } from '../failure-schema.ts';
import { failureFrom } from '../outcome.ts';
import { makeTemporary, sweep } from '../store.ts';
import { type ComponentStageResult, findSource, isNative, type Source } from './source.ts';
import { buildScript } from './stage.ts';

/** Longer than the CPU time, because a build yields its cores to all other processes of the machine. */
const DEFAULT_TIMEOUT_MS = 300_000;
const DEFAULT_CPU_MS = 120_000;
const DEFAULT_MEMORY_MB = 1536;

export interface ComponentBuildOptions {
  /** Directory of temporary files, and of the compiled crate `pie`. */
  readonly store: string;
  readonly signal?: AbortSignal | undefined;
  /** Wall-clock limit of a native build; 5 minutes by default, of which the build may compute for 2. */
  readonly timeoutMs?: number;
  /** Limit on the resident memory of a native build's process; 1.5 GiB by default. */
  readonly memoryMb?: number;
}

export type ComponentOutcome =
  | {
      readonly ok: true;
      /** A script, or the component of a native source. */
      readonly component: Uint8Array;
      /** Source files of the function, relative to the project. */
      readonly files: readonly string[];
    }
  | BuildFailure;

/**
 * Builds a source (`.ts`, `.js`, `.c`, `.rs`, a core module or a project folder): bundles a script in this process, or compiles a component in a
 * child process with limits. Does not check workflows. Throws only when its signal aborts (the signal's reason) or the store cannot be written.
 */
export async function buildComponent(entry: string, options: ComponentBuildOptions): Promise<ComponentOutcome> {
  let source: Source;
  try {
    source = await findSource(entry);
    if (!isNative(source)) {
      const { script, files } = await buildScript(source);
      return { ok: true, component: script, files };
    }
  } catch (error) {
    return failureFrom(error);
  }
  return buildNative(source, options);
}

async function buildNative({ entry }: Source, options: ComponentBuildOptions): Promise<ComponentOutcome> {
  const { store, signal } = options;
  await mkdir(store, { recursive: true });
  await sweep(store);
  const temporary = await makeTemporary(store);
  try {
    const output = join(temporary, 'component.wasm');
    const result = await runStage<ComponentStageResult>(
      ['component', resolve(entry), output, '--store', store],
      { read: ['/'], write: [store], tools: true },
      {
        timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
        cpuMs: DEFAULT_CPU_MS,
        memoryMb: options.memoryMb ?? DEFAULT_MEMORY_MB,
        signal,
      },
    );
    if (!result.ok) return result;
    return { ok: true, component: await readFile(output), files: result.files };
  } catch (error) {
    signal?.throwIfAborted();
    return failureFrom(error);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}
