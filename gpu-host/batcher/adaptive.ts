/** Bounds of the time that an idle device waits for queues just answered. Without the wait, two groups of clients alternate in half-full batches. */
export interface GracePolicy {
  /** Maximum wait in milliseconds. The default, 10, is enough for 30 inferlets of one thread to ask for their next step. */
  readonly maxMs: number;
  /**
   * Maximum wait as a share of the last step's duration; 1 by default. Then a wait in vain costs at most one step, as a batch that leaves too early
   * may. No policy that does not know the future has a better bound.
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
 * A wait delays each of the `ready` calls. A batch that leaves at once costs each `losing` call a whole step: an awaited call misses this step, and
 * a ready call of a slow queue comes back too late for the next one. So the wait may last as long as the step's duration times losing / ready,
 * within the policy's bounds.
 */
export function graceMs(policy: GracePolicy, ready: number, losing: number, lastStepMs: number): number {
  if (ready === 0 || losing === 0) return 0;
  return Math.min(longestGraceMs(policy, lastStepMs), (lastStepMs * losing) / ready);
}
