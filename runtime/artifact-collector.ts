import { readdir } from 'node:fs/promises';
import { componentUsers } from '#scheduler/functions/functions.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Logger } from '#scheduler/policies/logger.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { type Artifact, artifactHashOf, readArtifactAsItIs, removeUnusedArtifact } from './build/index.ts';
import { memoryPagesOf } from './pool/launcher.ts';
import { readScriptArtifactAsItIs, type ScriptArtifact, scriptArtifactHashOf } from './pool/scripts.ts';

export interface ArtifactCollectorOptions {
  /** Folder of artifacts. */
  readonly store: string;
  /** Resolves to true when a version may still need the artifact. After an error the artifact stays, and the next round starts with its successor. */
  readonly isWanted: (artifact: Artifact | ScriptArtifact) => Promise<boolean>;
  /** An artifact that was read within this time stays. The default, an hour, is many times the time from a deploy's build to its registration. */
  readonly unusedMs?: number;
  /** Time between two rounds; a minute by default. */
  readonly everyMs?: number;
  /** Maximum number of artifacts that one round checks; 32 by default. */
  readonly lookedAtOnce?: number;
  readonly log: Logger;
}

const UNUSED_MS = 3_600_000;
const EVERY_MS = 60_000;
const LOOKED_AT_ONCE = 32;
/** An artifact's folder is named by the artifact's sha256. */
const NAME = /^[0-9a-f]{64}$/;

/** Removes artifacts that no version needs, some in each round, from `start` to `stop`. */
export class ArtifactCollector {
  readonly #options: ArtifactCollectorOptions;
  /** Name of the artifact that was checked last; empty before the first. */
  #lastName = '';
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<unknown> | undefined;
  #stopped = false;

  constructor(options: ArtifactCollectorOptions) {
    this.#options = options;
  }

  /** Runs the first round after `everyMs`, and each later round `everyMs` after the end of the previous one. */
  start(): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.round()
        .catch((error: unknown) => this.#options.log.warn({ error }, 'unused artifacts could not be removed'))
        .finally(() => this.start());
    }, this.#options.everyMs ?? EVERY_MS).unref();
  }

  /** Starts no more rounds, and waits for the current one. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  /** Checks the next artifacts in the order of their names, and begins again after the last one. Returns the names of the removed artifacts. */
  async round(): Promise<string[]> {
    const { store, isWanted, unusedMs = UNUSED_MS, lookedAtOnce = LOOKED_AT_ONCE } = this.#options;
    const names = (await readdir(store)).filter((name) => NAME.test(name)).sort();
    const following = names.filter((name) => name > this.#lastName);
    const checkedNames = (following.length > 0 ? following : names).slice(0, lookedAtOnce);
    const removed: string[] = [];
    for (const name of checkedNames) {
      if (this.#stopped) break;
      // Note the name first, so that the next round starts after an artifact whose check fails.
      this.#lastName = name;
      const artifact = (await readArtifactAsItIs(store, name)) ?? (await readScriptArtifactAsItIs(store, name));
      // Null stands for a damaged or incomplete artifact: no launch can use it, so no version needs it.
      const isNeeded = artifact !== null && (await isWanted(artifact));
      if (!isNeeded && (await removeUnusedArtifact(store, name, unusedMs))) removed.push(name);
    }
    return removed;
  }
}

/** Maximum number of versions of a component that are examined. With more, every artifact of the current toolchain is kept. */
const MAX_USERS = 64;

/**
 * Returns a function that tests if a version may need an artifact. An artifact of another toolchain is never needed. Otherwise an artifact is needed
 * while a deployed or draining version has its component and memory limit, or has it as its engine, and while its component is being deployed. The
 * artifact of a script serves every memory limit.
 *
 * @param limits limits of a function whose manifest sets none
 */
export function artifactWanted(
  scheduler: Pick<Scheduler, 'blobs' | 'functions' | 'store'>,
  limits: InvocationLimits,
): (artifact: Artifact | ScriptArtifact) => Promise<boolean> {
  return async ({ meta }) => {
    const { hash, component } = meta;
    const options = 'options' in meta ? meta.options : null;
    const presentHash =
      options === null ? scriptArtifactHashOf(component.hash) : artifactHashOf(component.hash, options);
    if (presentHash !== hash) return false;
    if (!(await scheduler.blobs.has(component.hash))) return false;
    const users = await componentUsers(scheduler, component.hash, MAX_USERS);
    // Null: more than MAX_USERS versions. A stored component without versions is being deployed.
    if (users === null || users.length === 0) return true;
    if (options === null) return true;
    return users.some(
      ({ manifest, engine }) =>
        engine === component.hash || memoryPagesOf(resolveLimits(manifest, limits).memoryMb) === options.memoryPages,
    );
  };
}
