import type { BatchCall } from './call.ts';
import { linksOf } from './links.ts';

/**
 * Unblocks the followers of `call`: forwards that wait for it softly, and projections that wait for it. The batch under construction takes all
 * remaining inputs of `call`, so its followers may join that batch before `call` is done. `onAdmitted` receives each one that now waits for no
 * other call.
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

/**
 * Blocks all followers of `call` again once the batch is made, because `call` is not done. Those that found no room wait until its end. Those in
 * the batch get the blocker, too, since the end of `call` takes one from every follower.
 */
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
