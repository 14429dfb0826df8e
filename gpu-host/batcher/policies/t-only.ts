/**
 * Milliseconds still to wait for the clock, which strikes at every multiple of `intervalMs`, when calls have been ready and the device
 * free since `sinceMs`. A strike while the device computes passes unused.
 */
export function tOnlyWaitMs(policy: { readonly intervalMs: number }, sinceMs: number, nowMs: number): number {
  const strikeMs = (Math.floor(sinceMs / policy.intervalMs) + 1) * policy.intervalMs;
  return Math.max(0, strikeMs - nowMs);
}
