import { isNewer } from '#scheduler/policies/victims.ts';
import type { Grant } from '../batcher/batcher.ts';
import type { BatchCall } from '../batcher/call.ts';
import type { Contender } from '../memory/contender.ts';
import { dependencyFault } from '../memory/fault.ts';
import type { HostCall } from './call.ts';
import type { ForwardCall } from './forward.ts';
import { DistributionCall, type ProjectCall } from './project.ts';

/**
 * The order in which calls get memory: oldest family first, so that no call is preempted after it was prepared. Within a family, the batch's
 * order: later calls build on earlier ones.
 */
export function oldestFirst(grants: readonly Grant[]): readonly Grant[] {
  if (grants.every((grant, i) => i === 0 || !isNewer(familyOf(grants[i - 1] as Grant), familyOf(grant)))) return grants;
  return grants.toSorted((a, b) => {
    const [one, other] = [familyOf(a), familyOf(b)];
    if (one === other) return 0;
    return isNewer(one, other) ? 1 : -1;
  });
}

const familyOf = ({ call }: Grant): Contender => (call as HostCall).hostQueue.space.pages.contender;

/** The distributions over states that a forward makes. */
export function ridersOf(forward: ForwardCall, projections: readonly ProjectCall[]): DistributionCall[] {
  const { space } = forward.hostQueue;
  const riders: DistributionCall[] = [];
  for (const call of projections) {
    if (call instanceof DistributionCall && call.hostQueue.space === space && forward.makes(call.embed))
      riders.push(call);
  }
  return riders;
}

/** Checks the calls that this one needs in its batch. @throws CallFault with the cause of the one that failed */
export function checkBefore({ after }: Grant): void {
  const failed = after?.find((call) => failureOf(call) !== undefined);
  if (failed) throw dependencyFault(failureOf(failed) as NonNullable<HostCall['failure']>);
}

function failureOf(call: BatchCall): HostCall['failure'] {
  return (call as HostCall).failure;
}
