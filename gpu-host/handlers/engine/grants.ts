import type { Batch, Grant } from '../../batcher/batcher.ts';
import type { BatchCall } from '../../batcher/call.ts';
import type { Contender } from '../../memory/contender.ts';
import { dependencyFault } from '../../memory/fault.ts';
import type { HostCall } from '../calls/call.ts';
import type { ForwardCall } from '../calls/forward.ts';
import { DistributionCall, type ProjectCall } from '../calls/project.ts';

/**
 * The order in which calls get memory: that of their families (an invocation and its children), so that no call is preempted after it was prepared.
 * The calls of one family stay in the order of the batch, because later calls build on earlier ones.
 *
 * A call may wait for pages that a call of a later family computes. In this order, the later family then has the place of the waiting one.
 * Otherwise a third family between them could take the memory that the pages need. When memory runs short, only the later family's
 * true place counts. If the family then gets too little, its call is held, and the waiting call computes the pages itself.
 *
 * @param precedes true when the first family gets memory before the second
 */
export function inOrderOfMemory(
  grants: readonly Grant[],
  awaitedBy: Batch['awaitedBy'],
  precedes: (a: Contender, b: Contender) => boolean,
): readonly Grant[] {
  const isInOrder = (grant: Grant, i: number): boolean => {
    const previous = grants[i - 1];
    return !previous || !precedes(familyOf(grant.call), familyOf(previous.call));
  };
  if (awaitedBy.size === 0 && grants.every(isInOrder)) return grants;
  const places = new Map<Contender, Contender>();
  for (const { call } of grants) {
    const family = familyOf(call);
    let place = places.get(family) ?? family;
    for (const waiter of awaitedBy.get(call) ?? []) if (precedes(familyOf(waiter), place)) place = familyOf(waiter);
    places.set(family, place);
  }
  return grants.toSorted((a, b) => {
    const [one, other] = [familyOf(a.call), familyOf(b.call)];
    if (one === other) return 0;
    const [place, otherPlace] = [places.get(one) ?? one, places.get(other) ?? other];
    if (place === otherPlace) return precedes(one, other) ? -1 : 1;
    return precedes(place, otherPlace) ? -1 : 1;
  });
}

const familyOf = (call: BatchCall): Contender => (call as HostCall).hostQueue.space.pages.contender;

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
