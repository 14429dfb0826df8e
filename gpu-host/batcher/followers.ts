import type { BatchCall } from './call.ts';
import { linksOf } from './links.ts';

/**
 * `call` leaves whole with the batch that is being made: forwards that wait for it softly, and projections, need not wait for it to be
 * done to be in that batch too. `admitted` is told each that now waits for nobody.
 */
export function admitFollowers(call: BatchCall, admitted: (later: BatchCall) => void): void {
  if (call.dependents) {
    for (const later of call.dependents) if (later.kind === 'project' && --later.blockers === 0) admitted(later);
  }
  if (call.links?.softDependents) {
    for (const { later, needs } of call.links.softDependents) {
      const links = linksOf(later);
      links.follows++;
      if (needs) {
        links.needs ??= [];
        links.needs.push(call);
      }
      if (--later.blockers === 0) admitted(later);
    }
  }
}

/** The batch is made, and `call` is not done: everybody waits for it again, those that were admitted and found no room until its end. */
export function dismissFollowers(call: BatchCall): void {
  if (call.dependents) for (const later of call.dependents) if (later.kind === 'project') later.blockers++;
  if (call.links?.softDependents) {
    for (const { later } of call.links.softDependents) {
      const links = linksOf(later);
      links.follows = 0;
      links.needs = undefined;
      later.blockers++;
    }
  }
}
