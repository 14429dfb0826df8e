import { isNewer, type Place } from '#scheduler/policies/victims.ts';
import type { Batch, Grant } from '../batcher/batcher.ts';
import type { BatchCall } from '../batcher/call.ts';
import type { Contender } from '../memory/contender.ts';
import { dependencyFault } from '../memory/fault.ts';
import type { HostCall } from './call.ts';
import type { ForwardCall } from './forward.ts';
import { DistributionCall, type ProjectCall } from './project.ts';

/**
 * The order in which calls get memory: oldest family (an invocation and its children) first, so that no call is preempted after it was prepared.
 * The calls of one family stay in the order of the batch, because later calls build on earlier ones.
 *
 * A call may wait for pages that a call of a younger family computes. In this order, the younger family then counts as old as the waiting one.
 * Otherwise a third family with an age between them could take the memory that the pages need. When memory runs short, only the younger family's
 * true age counts. If the family then gets too little, its call is held, and the waiting call computes the pages itself.
 */
export function oldestFirst(grants: readonly Grant[], awaitedBy: Batch['awaitedBy']): readonly Grant[] {
  if (awaitedBy.size === 0 && grants.every((grant, i) => i === 0 || !isNewerCall(grants[i - 1] as Grant, grant)))
    return grants;
  const ages = new Map<Contender, Place>();
  for (const { call } of grants) {
    const family = familyOf(call);
    let age = ages.get(family) ?? family;
    for (const waiter of awaitedBy.get(call) ?? []) if (isNewer(age, familyOf(waiter))) age = familyOf(waiter);
    ages.set(family, age);
  }
  return grants.toSorted((a, b) => {
    const [one, other] = [familyOf(a.call), familyOf(b.call)];
    if (one === other) return 0;
    const [age, otherAge] = [ages.get(one) ?? one, ages.get(other) ?? other];
    if (age === otherAge) return isNewer(one, other) ? 1 : -1;
    return isNewer(age, otherAge) ? 1 : -1;
  });
}

const familyOf = (call: BatchCall): Contender => (call as HostCall).hostQueue.space.pages.contender;
const isNewerCall = (a: Grant, b: Grant): boolean => isNewer(familyOf(a.call), familyOf(b.call));

/** The distribution calls among `projections` whose states `forward` makes. */
export function ridersOf(forward: ForwardCall, projections: readonly ProjectCall[]): DistributionCall[] {
  const { space } = forward.hostQueue;
  const riders: DistributionCall[] = [];
  for (const call of projections) {
    if (call instanceof DistributionCall && call.hostQueue.space === space && forward.makes(call.embed))
      riders.push(call);
  }
  return riders;
}

/** Checks the calls of the same batch that the granted call needs. @throws CallFault with the cause of the first one that failed */
export function checkBefore({ after }: Grant): void {
  const failed = after?.find((call) => failureOf(call) !== undefined);
  if (failed) throw dependencyFault(failureOf(failed) as NonNullable<HostCall['failure']>);
}

function failureOf(call: BatchCall): HostCall['failure'] {
  return (call as HostCall).failure;
}
