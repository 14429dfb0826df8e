import type { BatchCall } from './call.ts';
import { linksOf } from './links.ts';

/**
 * Lets followers into the batch under construction, which contains all of `call`. Forwards that wait for `call` softly, and projections,
 * may join that batch before `call` is done. `onAdmitted` receives each follower that now waits for no call.
 */
export function admitFollowers(call: BatchCall, onAdmitted: (later: BatchCall) => void): void {
  if (call.dependents) {
    for (const later of call.dependents) if (later.kind === 'project' && --later.blockers === 0) onAdmitted(later);
  }
  if (call.links?.softDependents) {
    for (const { later, needs } of call.links.softDependents) {
      const links = linksOf(later);
      links.follows++;
      if (needs) {
        links.needs ??= [];
        links.needs.push(call);
      }
      if (--later.blockers === 0) onAdmitted(later);
    }
  }
}

/** Blocks the followers again once the batch is made: `call` is not done, so those that found no room wait until its end. */
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
