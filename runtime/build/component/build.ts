import { mkdir, readFile, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { runStage } from '../child.ts';
import type { BuildFailure } from '../failure-schema.ts';
import { failureFrom } from '../outcome.ts';
import { makeTemporary, sweep } from '../store.ts';
import type { ComponentStageResult } from './source.ts';

/** Longer than the CPU time, because a build yields its cores to all other processes of the machine. */
const DEFAULT_TIMEOUT_MS = 300_000;
const DEFAULT_CPU_MS = 120_000;
const DEFAULT_MEMORY_MB = 1536;

export interface ComponentBuildOptions {
  /** Directory of compiled components, by content. */
  readonly store: string;
  readonly signal?: AbortSignal | undefined;
  /** Wall-clock limit of the build; 5 minutes by default, of which the build may compute for 2. */
  readonly timeoutMs?: number;
  /** Limit on the build process's resident memory; 1.5 GiB by default (the compiler of the QuickJS engine takes half a GiB). */
  readonly memoryMb?: number;
}

export type ComponentOutcome =
  | {
      readonly ok: true;
      readonly component: Uint8Array;
      readonly hash: string;
      readonly cached: boolean;
      readonly files: readonly string[];
      readonly timings: { readonly bundleMs: number; readonly compileMs: number; readonly totalMs: number };
    }
  | BuildFailure;

/**
 * Compiles a source (`.ts`, `.js`, `.c`, `.rs`, a core module or a project folder) into a component, in a child
 * process with limits. Reuses the result for a bundle that was compiled before. Throws only when its signal aborts
 * (the signal's reason) or the store cannot be written.
 */
export async function buildComponent(entry: string, options: ComponentBuildOptions): Promise<ComponentOutcome> {
  const started = performance.now();
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
    const totalMs = Math.round(performance.now() - started);
    const { hash, cached, files, timings } = result;
    return { ok: true, component: await readFile(output), hash, cached, files, timings: { ...timings, totalMs } };
  } catch (error) {
    signal?.throwIfAborted();
    return failureFrom(error);
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}
