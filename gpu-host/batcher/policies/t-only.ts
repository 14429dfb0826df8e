/**
 * Remaining milliseconds until the clock's next tick, at a multiple of `intervalMs`, when calls have been ready and the device free since
 * `sinceMs`. A tick while the device computes passes unused.
 */
export function tOnlyWaitMs(policy: { readonly intervalMs: number }, sinceMs: number, nowMs: number): number {
  const nextTickMs = (Math.floor(sinceMs / policy.intervalMs) + 1) * policy.intervalMs;
  return Math.max(0, nextTickMs - nowMs);
}
