import { type AccountHolder, isNewer, type MemoryOrder, type Place } from './memory-order.ts';
import { leaveInTurn, type Shortfall, withoutSpared } from './victims.ts';

/**
 * Number of steps that a returned family makes before others may preempt it again. During this time only the first family in the order may, the
 * families that the returned one overtook, and families within their share if the returned one is above its own.
 */
export const PROTECTED_TOKENS = 32;

/**
 * Device steps after which a returned family loses its protection even if it made fewer steps itself. A family that computes or waits for something
 * else must not keep its memory from others for longer. The factor 8 suffices for a family that takes part in one of eight device steps.
 */
export const PROTECTED_DEVICE_STEPS = 8 * PROTECTED_TOKENS;

/** While a family that precedes it runs, a family returns only when one of 2^RESERVE_SHIFT frames stays free beyond its need, so that others can grow. */
export const RESERVE_SHIFT = 4;

/** A family: an invocation with its children, which leave the device and return together. */
export interface Preemptible<A> extends AccountHolder<A> {
  /** Steps that the family still has to make before it may be preempted again; 0 when it has no protection. */
  readonly protectedSteps: number;
  /** When this family returned, older families may have been away because they did not fit. This is the newest of them. */
  readonly overtook?: Place | undefined;
}

/**
 * True when a family that returned a short while ago is protected from `other`. It is not protected from `overtook` and older families, nor, while
 * its tenant holds more than its share, from a family of a tenant within its own.
 */
export function isProtectedFrom<A>(family: Preemptible<A>, other: AccountHolder<A>, order: MemoryOrder<A>): boolean {
  const { account, protectedSteps, overtook } = family;
  if (protectedSteps === 0 || (order.excess(other.account) === 0 && order.excess(account) > 0)) return false;
  return !overtook || isNewer(other, overtook);
}

/**
 * Chooses the families to preempt for a request that does not fit: by `order`, the last first, and no more than needed. No family that precedes the
 * requester is chosen. A protected family is chosen last, and only when the requester is the first of its tenant (or of all, for another tenant's family),
 * or one from which the protected family has no protection.
 *
 * @param runningFamilies other families that hold memory and may go on, in any order
 * @param shortfall the request's shortfall while all of these families stay; the choice changes it
 * @returns undefined when the families that may be chosen hold too little
 */
export function choosePreempted<A, F extends Preemptible<A>>(
  requester: AccountHolder<A>,
  runningFamilies: readonly F[],
  shortfall: Shortfall<F>,
  order: MemoryOrder<A>,
): readonly F[] | undefined {
  const preceding = runningFamilies.filter((other) => order.precedes(other, requester));
  const isFirstOfItsTenant = !preceding.some(({ account }) => account === requester.account);
  const mayLeave = (other: F): boolean => {
    const isFirst = other.account === requester.account ? isFirstOfItsTenant : preceding.length === 0;
    return order.precedes(requester, other) && (isFirst || !isProtectedFrom(other, requester, order));
  };
  const candidates = runningFamilies.filter(mayLeave).sort((a, b) => {
    const [isProtectedA, isProtectedB] = [a.protectedSteps > 0, b.protectedSteps > 0];
    if (isProtectedA !== isProtectedB) return isProtectedA ? 1 : -1;
    return order.compare(b, a);
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
  /** Frames that are free, or that would be free if no family behind this one ran. */
  readonly available: number;
  /** Frames of the pool. */
  readonly total: number;
  /** True when a family that precedes this one runs. Otherwise the returning family is the first that can go on, and returns at once. */
  readonly isPreceded: boolean;
}

/** True when a family may return. The reserve keeps the family from being preempted again right away. */
export function mayReturn({ needed, available, total, isPreceded }: Return): boolean {
  if (!isPreceded) return true;
  const reserve = Math.min(total >> RESERVE_SHIFT, Math.max(0, total - needed));
  return needed + reserve <= available;
}
