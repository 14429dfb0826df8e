import { isNewer, leaveInTurn, type Place, type Shortfall, withoutSpared } from './victims.ts';

/**
 * Number of its own steps for which a returned family is protected. Only the oldest family, and families that
 * it overtook, may preempt it earlier.
 */
export const PROTECTED_TOKENS = 32;

/**
 * Device steps after which a returned family loses its protection even if it made fewer steps itself: a family that computes or waits for
 * something else must not keep others from its memory. The factor 8 leaves time to a family that takes part in one device step of eight.
 */
export const PROTECTED_DEVICE_STEPS = 8 * PROTECTED_TOKENS;

/** A family returns only when one frame in 2^RESERVE_SHIFT stays free beyond its need: other families may grow. */
export const RESERVE_SHIFT = 4;

/** An invocation with its children, as the policy sees it. They leave the device and return together. */
export interface Preemptible extends Place {
  /** Steps that the family still has to make before it may be preempted again. */
  readonly protectedSteps: number;
  /** The newest of the older families that were away, because they did not fit, when this family returned. */
  readonly overtook?: Place | undefined;
}

/**
 * True when a family that returned a short while ago is protected from `other`. Families that it overtook, and any older ones, need not wait
 * for it.
 */
export function isProtectedFrom({ protectedSteps, overtook }: Preemptible, other: Place): boolean {
  return protectedSteps > 0 && (!overtook || isNewer(other, overtook));
}

/**
 * Chooses the families to preempt for a request that does not fit: the newest first, and no more than needed. No family older than the
 * requester is chosen, so the oldest always advances. A family that returned a short while ago is chosen last, and only for the oldest family
 * and for those that it overtook.
 *
 * @param runningFamilies other families that hold memory and may go on, in any order
 * @param shortfall of the request while all of them stay; the choice changes it
 * @returns undefined when the families that may be chosen hold too little
 */
export function choosePreempted<F extends Preemptible>(
  requester: Place,
  runningFamilies: readonly F[],
  shortfall: Shortfall<F>,
): readonly F[] | undefined {
  const isOldest = !runningFamilies.some((other) => isNewer(requester, other));
  const candidates = runningFamilies
    .filter((other) => isNewer(other, requester) && (isOldest || !isProtectedFrom(other, requester)))
    .sort((a, b) => Number(a.protectedSteps > 0) - Number(b.protectedSteps > 0) || (isNewer(a, b) ? -1 : 1));
  const departed = leaveInTurn(candidates, shortfall);
  if (shortfall.missing > 0) return undefined;
  // A family whose pages are not needed stays.
  return withoutSpared(departed, shortfall, () => shortfall.missing <= 0);
}

export interface Return {
  /** Pages that the family needs on the device to go on. */
  readonly needed: number;
  /** Frames that are free, or would be once no newer family ran. */
  readonly available: number;
  /** Frames of the pool. */
  readonly total: number;
  /** True when an older family runs. Without one the family is the oldest that can go on, and returns at once. */
  readonly olderRuns: boolean;
}

/** True when a family may return. The reserve keeps it from being preempted again right away. */
export function mayReturn({ needed, available, total, olderRuns }: Return): boolean {
  return !olderRuns || needed + Math.min(total >> RESERVE_SHIFT, Math.max(0, total - needed)) <= available;
}
