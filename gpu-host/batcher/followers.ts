import type { BatchCall } from './call.ts';
import { linksOf } from './links.ts';

/**
 * Unblocks the followers of `call`: forwards that wait for it softly (`SoftEdge`), and projections that wait for it. The batch under construction
 * takes all remaining inputs of `call`, so the followers may join that batch before `call` is done. `onAdmitted` receives each follower that now
 * waits for no other call.
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
 * Blocks all followers of `call` again once the batch is made, because `call` is not done. Followers that found no room wait until `call` is done.
 * Followers in the batch get a blocker, too, since `Scoreboard.remove` takes one from every follower when `call` is done.
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
