import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Layers } from '../../sandboxes/index.ts';
import { runStage } from '../child.ts';
import type { BuildFailure } from '../failure-schema.ts';
import { failureFrom } from '../outcome.ts';
import { makeTemporary, publishArtifact, readArtifact, removeTree, sweep, takeArtifactFiles } from '../store.ts';
import { type Artifact, artifactHashOf, checkKind, DEFAULT_MEMORY_PAGES, sha256 } from './artifact.ts';
import type { ArtifactMeta, ArtifactOptions } from './meta-schema.ts';

/** Longer than CPU_MS, because a build yields its cores to all other processes of the machine. */
const DEFAULT_TIMEOUT_MS = 150_000;
const CPU_MS = 120_000;
const DEFAULT_MEMORY_MB = 1024;
/** Bounds on the files of a build: several times the bytes of the largest artifact, and many times its number of files. */
const MAX_FILES = { megabytes: 1024, names: 10_000 };

export interface ArtifactBuildOptions extends Partial<ArtifactOptions> {
  /** Directory of artifacts, one folder each, named by hash. */
  readonly store: string;
  readonly signal?: AbortSignal | undefined;
  /** Wall-clock limit of the build; 150 s by default, of which the build may compute for 120 s. */
  readonly timeoutMs?: number;
  /** Limit on the build process's resident memory; 1 GiB by default. */
  readonly memoryMb?: number;
  /** Confinement of the build process; the strongest layers of this machine by default. */
  readonly layers?: Layers | undefined;
}

export type BuildOutcome =
  | {
      readonly ok: true;
      readonly artifact: Artifact;
      readonly cached: boolean;
      readonly timings: { readonly totalMs: number };
    }
  | BuildFailure;

/** Running builds that no signal can abort, by store and hash: two requests for one artifact share a build. */
const underway = new Map<string, Promise<BuildOutcome>>();

/**
 * Makes a component into an artifact in `store`, in a child process with limits; returns the stored artifact when all its inputs are
 * unchanged. A failed build leaves no files behind. Throws only when its signal aborts (the signal's reason).
 */
export async function buildArtifact(component: Uint8Array, options: ArtifactBuildOptions): Promise<BuildOutcome> {
  const startedMs = performance.now();
  try {
    checkKind(component);
  } catch (error) {
    return failureFrom(error);
  }
  const memoryPages = options.memoryPages ?? DEFAULT_MEMORY_PAGES;
  const hash = artifactHashOf(sha256(component), { memoryPages });
  const existing = await readArtifact(options.store, hash);
  if (existing) return successFrom(existing, true, startedMs);
  const key = `${options.store}\0${hash}`;
  const running = options.signal ? undefined : underway.get(key);
  if (running) return running;
  const build = buildNew(component, hash, { ...options, memoryPages }, startedMs);
  if (!options.signal) {
    underway.set(key, build);
    void build.catch(() => undefined).then(() => underway.delete(key));
  }
  return build;
}

async function buildNew(
  component: Uint8Array,
  hash: string,
  options: ArtifactBuildOptions & ArtifactOptions,
  startedMs: number,
): Promise<BuildOutcome> {
  const { store, signal } = options;
  let temporary: string | undefined;
  try {
    await sweep(store);
    temporary = await makeTemporary(store);
    const input = join(temporary, 'component.wasm');
    const output = join(temporary, 'artifact');
    const takenFolder = join(temporary, 'taken');
    await writeFile(input, component);
    const result = await runStage<{ ok: true; meta: ArtifactMeta }>(
      ['artifact', input, output, '--memory-pages', String(options.memoryPages)],
      { read: [], write: [temporary], tools: false },
      {
        timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
        cpuMs: CPU_MS,
        memoryMb: options.memoryMb ?? DEFAULT_MEMORY_MB,
        files: MAX_FILES,
        signal,
      },
      options.layers,
    );
    if (!result.ok) return result;
    await takeArtifactFiles(output, takenFolder);
    await publishArtifact(takenFolder, store, hash);
    const artifact = await readArtifact(store, hash);
    if (artifact?.meta.component.hash !== sha256(component)) throw new Error(`the artifact ${hash} is not whole`);
    return successFrom(artifact, false, startedMs);
  } catch (error) {
    signal?.throwIfAborted();
    return failureFrom(error);
  } finally {
    if (temporary !== undefined) await removeTree(temporary);
  }
}

const successFrom = (artifact: Artifact, cached: boolean, startedMs: number): BuildOutcome => ({
  ok: true,
  artifact,
  cached,
  timings: { totalMs: Math.round((performance.now() - startedMs) * 10) / 10 },
});
