/** Bounds of the wait of an idle device for just answered queues. It keeps groups of clients from alternating half batches. */
export interface GracePolicy {
  /** Maximum wait in milliseconds: 4 by default. */
  readonly maxMs: number;
  /**
   * Maximum wait as a share of the last step's duration: 1 by default. Then a wait in vain costs what going at once may cost, and no policy
   * that does not know the future has a better bound.
   */
  readonly stepShare: number;
}

export const DEFAULT_GRACE: GracePolicy = { maxMs: 4, stepShare: 1 };

/** The longest wait in milliseconds, independent of the ready and awaited calls. */
export const longestGraceMs = (policy: GracePolicy, lastStepMs: number): number =>
  Math.min(policy.maxMs, policy.stepShare * lastStepMs);

/**
 * Longest useful wait, in milliseconds, from the end of the last step.
 *
 * Waiting costs the `ready` calls the wait; going costs the `awaited` calls a whole step more, and the device a second step for the work of
 * one. So the wait is worth the step's duration times awaited / ready, and is cut at the policy's bounds.
 */
export function graceMs(policy: GracePolicy, ready: number, awaited: number, lastStepMs: number): number {
  if (ready === 0 || awaited === 0) return 0;
  return Math.min(longestGraceMs(policy, lastStepMs), (lastStepMs * awaited) / ready);
}
