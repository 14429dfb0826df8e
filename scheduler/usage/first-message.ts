/** Four buckets to a doubling: a quantile is at most 19 % above the measured value. */
const BUCKETS_PER_DOUBLING = 4;

/** Counts of the times from submission to the first message, by bucket of `usage.lua`. */
export type FirstMessageTimes = ReadonlyMap<number, number>;

/** The upper end of a bucket, ms. */
function bucketEnd(bucket: number): number {
  return 2 ** (bucket / BUCKETS_PER_DOUBLING);
}

/** The time, ms, within which the fraction `part` of all first messages came, rounded up to the end of a bucket. Null without messages. */
export function quantile(times: FirstMessageTimes, part: number): number | null {
  const buckets = [...times].sort(([a], [b]) => a - b);
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  let remainingCount = Math.max(1, Math.ceil(part * total));
  for (const [bucket, count] of buckets) {
    remainingCount -= count;
    if (remainingCount <= 0) return Math.round(bucketEnd(bucket));
  }
  return null;
}
