import { componentUsers } from '#scheduler/functions/functions.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { type Artifact, artifactHashOf } from '../build/index.ts';
import { memoryPagesOf } from '../pool/launcher.ts';

/** Maximum number of versions of a component that are examined. With more, every artifact of the current toolchain is kept. */
const MAX_USERS = 64;

/**
 * Returns a function that tests if a version may need an artifact. An artifact of another toolchain is never needed. Otherwise an artifact is needed
 * while a deployed or draining version has its component and memory limit, and while its component is being deployed.
 *
 * @param limits limits of a function whose manifest sets none
 */
export function artifactWanted(
  scheduler: Pick<Scheduler, 'blobs' | 'functions' | 'store'>,
  limits: InvocationLimits,
): (artifact: Artifact) => Promise<boolean> {
  return async ({ hash, meta: { component, options } }) => {
    if (artifactHashOf(component.hash, options) !== hash) return false;
    if (!(await scheduler.blobs.has(component.hash))) return false;
    const users = await componentUsers(scheduler, component.hash, MAX_USERS);
    // Null: more than MAX_USERS versions. A stored component without versions is being deployed.
    if (users === null || users.length === 0) return true;
    return users.some(
      ({ manifest }) => memoryPagesOf(resolveLimits(manifest, limits).memoryMb) === options.memoryPages,
    );
  };
}
