import { componentUsers } from '#scheduler/functions/component-users.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { type Artifact, artifactHashOf } from '../build/index.ts';
import { memoryPagesOf } from '../pool/launcher.ts';

/** Maximum versions of a component that are examined; with more, every artifact of the current toolchain is kept. */
const MAX_USERS = 64;

/**
 * Makes the test of an artifact. It resolves to true when a version may need the artifact: the current toolchain would make the same artifact,
 * and a deployed or draining version has its component and memory limit, or the component is being deployed.
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
    if (users === null || users.length === 0) return true;
    return users.some(
      ({ manifest }) => memoryPagesOf(resolveLimits(manifest, limits).memoryMb) === options.memoryPages,
    );
  };
}
