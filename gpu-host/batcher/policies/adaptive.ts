/** Bounds of the wait of an idle device for just answered queues. The wait keeps two groups of clients from taking turns in half-full batches. */
export interface GracePolicy {
  /** Maximum wait in milliseconds: 10 by default, in which 30 inferlets that share a thread all ask for their next step. */
  readonly maxMs: number;
  /**
   * Maximum wait as a share of the last step's duration: 1 by default. Then a wait in vain costs what going at once may cost, and no policy
   * that does not know the future has a better bound.
   */
  readonly stepShare: number;
}

export const DEFAULT_GRACE: GracePolicy = { maxMs: 10, stepShare: 1 };

/** The longest wait in milliseconds, independent of the ready and awaited calls. */
export const longestGraceMs = (policy: GracePolicy, lastStepMs: number): number =>
  Math.min(policy.maxMs, policy.stepShare * lastStepMs);

/**
 * Longest useful wait for one more call, in milliseconds from the end of the last step, or from the last awaited call that came.
 *
 * Waiting costs the `ready` calls the wait; going costs each `losing` call a whole step: the awaited ones, which miss this step, and those
 * ready ones that come back too late for the next. So the wait is worth the step's duration times losing / ready, and is cut at the
 * policy's bounds.
 */
export function graceMs(policy: GracePolicy, ready: number, losing: number, lastStepMs: number): number {
  if (ready === 0 || losing === 0) return 0;
  return Math.min(longestGraceMs(policy, lastStepMs), (lastStepMs * losing) / ready);
}
