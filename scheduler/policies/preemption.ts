import { isNewer, leaveInTurn, type Place, type Shortfall, withoutSpared } from './victims.ts';

/**
 * Number of steps that a returned family makes before others may preempt it again. During this time only the oldest family may, and the families
 * that the returned one overtook.
 */
export const PROTECTED_TOKENS = 32;

/**
 * Device steps after which a returned family loses its protection even if it made fewer steps itself. A family that computes or waits for something
 * else must not keep its memory from others for longer. The factor 8 suffices for a family that takes part in one of eight device steps.
 */
export const PROTECTED_DEVICE_STEPS = 8 * PROTECTED_TOKENS;

/** While an older family runs, a family returns only when one of 2^RESERVE_SHIFT frames stays free beyond its need, so that others can grow. */
export const RESERVE_SHIFT = 4;

/** A family: an invocation with its children, which leave the device and return together. */
export interface Preemptible extends Place {
  /** Steps that the family still has to make before it may be preempted again; 0 when it has no protection. */
  readonly protectedSteps: number;
  /** When this family returned, older families may have been away because they did not fit. This is the newest of them. */
  readonly overtook?: Place | undefined;
}

/** True when a family that returned a short while ago is protected from `other`. It is not protected from `overtook` and older families. */
export function isProtectedFrom({ protectedSteps, overtook }: Preemptible, other: Place): boolean {
  return protectedSteps > 0 && (!overtook || isNewer(other, overtook));
}

/**
 * Chooses the families to preempt for a request that does not fit: the newest first, and no more than needed. No family older than the
 * requester is chosen, so the oldest always advances. A protected family is chosen last, and only when the requester is the oldest family or one
 * from which the protected family has no protection.
 *
 * @param runningFamilies other families that hold memory and may go on, in any order
 * @param shortfall the request's shortfall while all of these families stay; the choice changes it
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
    .sort((a, b) => {
      const [isProtectedA, isProtectedB] = [a.protectedSteps > 0, b.protectedSteps > 0];
      if (isProtectedA !== isProtectedB) return isProtectedA ? 1 : -1;
      return isNewer(a, b) ? -1 : 1;
    });
  const departed = leaveInTurn(candidates, shortfall);
  if (shortfall.missing > 0) return undefined;
  // A family whose pages are not needed stays.
  return withoutSpared(departed, shortfall, () => shortfall.missing <= 0);
}

/** State of the device when a family asks to return. */
export interface Return {
  /** Pages that the family needs on the device to go on. */
  readonly needed: number;
  /** Frames that are free, or that would be free if no newer family ran. */
  readonly available: number;
  /** Frames of the pool. */
  readonly total: number;
  /** True when an older family runs. Otherwise the returning family is the oldest that can go on, and returns at once. */
  readonly olderRuns: boolean;
}

/** True when a family may return. The reserve keeps the family from being preempted again right away. */
export function mayReturn({ needed, available, total, olderRuns }: Return): boolean {
  if (!olderRuns) return true;
  const reserve = Math.min(total >> RESERVE_SHIFT, Math.max(0, total - needed));
  return needed + reserve <= available;
}
