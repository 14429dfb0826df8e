/**
 * Policy for when a batch leaves.
 * - `adaptive`: as soon as the device is free, after at most a short wait for queues whose calls were just answered. The default.
 * - `eager`: every call leaves alone, in order of arrival.
 * - `k-only`: when `calls` calls are ready, or the oldest has waited `maxWaitMs`.
 * - `t-only`: at each tick of a clock of `intervalMs`, with the calls that are ready then.
 * - `rate`: waits for the next call while the expected wait costs the ready calls less than it saves the next one; never past `maxWaitMs`.
 *
 * All but `adaptive` are for comparison (Pie, SOSP '25, section 5.2).
 */
export type BatchPolicy =
  | { readonly kind: 'adaptive' }
  | { readonly kind: 'eager' }
  | { readonly kind: 'k-only'; readonly calls: number; readonly maxWaitMs: number }
  | { readonly kind: 't-only'; readonly intervalMs: number }
  | { readonly kind: 'rate'; readonly maxWaitMs: number };

/** @throws RangeError when a bound of the policy is not a positive number */
export function checkPolicy(policy: BatchPolicy): void {
  for (const [name, bound] of Object.entries(policy)) {
    if (name !== 'kind' && !(bound > 0 && bound < Number.POSITIVE_INFINITY)) {
      throw new RangeError(`batch policy ${policy.kind}: ${name} is ${bound}; a positive number is expected`);
    }
  }
}
