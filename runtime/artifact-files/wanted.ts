import { componentUsers } from '#scheduler/functions/component-users.ts';
import { resolveLimits } from '#scheduler/functions/manifest.ts';
import type { InvocationLimits } from '#scheduler/invocations/types.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { type Artifact, artifactHashOf } from '../build/index.ts';
import { memoryPagesOf } from '../pool/launcher.ts';

/** Of a component that more versions use, every artifact of the present toolchain is kept. */
const MOST_USERS = 64;

/**
 * Whether a version may need an artifact: the present toolchain would make the same one, and a version that is deployed or drains has its component
 * and its memory limit, or the component is being deployed.
 *
 * @param limits of a function whose manifest asks for nothing
 */
export function artifactWanted(
  scheduler: Pick<Scheduler, 'blobs' | 'functions' | 'store'>,
  limits: InvocationLimits,
): (artifact: Artifact) => Promise<boolean> {
  return async ({ hash, meta: { component, options } }) => {
    if (artifactHashOf(component.hash, options) !== hash) return false;
    if (!(await scheduler.blobs.has(component.hash))) return false;
    const users = await componentUsers(scheduler, component.hash, MOST_USERS);
    if (users === null || users.length === 0) return true;
    return users.some(
      ({ manifest }) => memoryPagesOf(resolveLimits(manifest, limits).memoryMb) === options.memoryPages,
    );
  };
}
