/** Resource usage of an invocation by name, with units in the names (`inputTokens`, `cpuMs`, `kvPagesPeak`). */
export type Usage = Readonly<Record<string, number>>;

/**
 * The metered parts of an invocation's usage, in the order of the counters in Redis. `units` is the number of Redis's units in one unit of the
 * usage: Redis counts whole tokens, times in µs, and page-ms.
 */
export const METERED_FIELDS = [
  { name: 'inputTokens', units: 1 },
  { name: 'outputTokens', units: 1 },
  { name: 'cachedTokens', units: 1 },
  { name: 'gpuMs', units: 1000 },
  { name: 'cpuMs', units: 1000 },
  { name: 'wallMs', units: 1000 },
  { name: 'queuedMs', units: 1000 },
  { name: 'pageSeconds', units: 1000 },
] as const;

export type MeteredName = (typeof METERED_FIELDS)[number]['name'];

/** An attempt's usage so far, as the scripts take it: whole numbers separated by spaces; empty for none. */
export function meteredText(usage: Usage | null | undefined): string {
  if (usage == null) return '';
  return METERED_FIELDS.map(({ name, units }) => wholeNumber((usage[name] ?? 0) * units)).join(' ');
}

/** A whole number of 0 or more, also for a malformed report. */
function wholeNumber(units: number): number {
  return Number.isFinite(units) && units > 0 ? Math.min(Math.round(units), Number.MAX_SAFE_INTEGER) : 0;
}

/** The metered values by name, from the numbers in Redis. */
export function meteredOf(units: readonly number[]): Record<MeteredName, number> {
  return Object.fromEntries(
    METERED_FIELDS.map(({ name, units: divisor }, i) => [name, (units[i] ?? 0) / divisor]),
  ) as Record<MeteredName, number>;
}

/**
 * The usage of an invocation over all its attempts: the last attempt's final report, with the metered parts summed.
 *
 * @param textBefore sum of the metered parts over the earlier attempts, as the record has it
 * @param textNow the metered parts of the last attempt that reported
 */
export function totalUsage(
  final: Usage | null,
  textBefore: string | undefined,
  textNow: string | undefined,
): Usage | null {
  // Without earlier attempts, the final report is the total.
  if (textNow === undefined || (final !== null && textBefore === undefined)) return final;
  const earlier = numbers(textBefore);
  const last = numbers(textNow);
  const sum = meteredOf(last.map((n, i) => n + (earlier[i] ?? 0)));
  // A part that is 0 appears only if the final report names it.
  const spentEntries = Object.entries(sum).filter(([name, n]) => n > 0 || final?.[name] !== undefined);
  return { ...final, ...Object.fromEntries(spentEntries) };
}

/** The usage of several attempts: `last`, with the metered parts summed. */
export function sumOfUsage(before: Usage, last: Usage): Usage {
  return totalUsage(last, meteredText(before), meteredText(last)) ?? last;
}

function numbers(text: string | undefined): number[] {
  return text === undefined ? [] : text.split(' ').map(Number);
}

/** `requests` counts invocations made by clients; `invocations` also counts the children that they launched. */
const COUNT_NAMES = ['requests', 'invocations', 'succeeded', 'failed', 'cancelled'] as const;

/** Counts of one span of time: those of {@link COUNT_NAMES}, and the metered fields in the units of their names. */
export type UsageCounts = Readonly<Record<(typeof COUNT_NAMES)[number] | MeteredName, number>>;

const ZERO_COUNTS = COUNT_NAMES.map(() => 0).concat(METERED_FIELDS.map(() => 0));

/** Counts by name, from a counter array of Redis. */
export function toCounts(values: readonly unknown[]): UsageCounts {
  const numbers = ZERO_COUNTS.map((_, i) => Number(values[i] ?? 0));
  const plain = Object.fromEntries(COUNT_NAMES.map((name, i) => [name, numbers[i] ?? 0]));
  return { ...plain, ...meteredOf(numbers.slice(COUNT_NAMES.length)) } as UsageCounts;
}

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
