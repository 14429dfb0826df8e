/** Remaining milliseconds of the wait for `calls` calls, when `ready` are there and the oldest has waited `waitedMs`. */
export function kOnlyWaitMs(
  policy: { readonly calls: number; readonly maxWaitMs: number },
  ready: number,
  waitedMs: number,
): number {
  return ready >= policy.calls ? 0 : Math.max(0, policy.maxWaitMs - waitedMs);
}
