/**
 * Milliseconds until the first tick after `sinceMs`. Since then, calls have been ready and the device free. Ticks are at the multiples of
 * `intervalMs`. A tick while the device computes passes unused.
 */
export function tOnlyWaitMs(policy: { readonly intervalMs: number }, sinceMs: number, nowMs: number): number {
  const nextTickMs = (Math.floor(sinceMs / policy.intervalMs) + 1) * policy.intervalMs;
  return Math.max(0, nextTickMs - nowMs);
}
