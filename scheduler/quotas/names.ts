import type { UsageCounts } from '../usage/metered.ts';

/** Windows of the counted quotas (those that limit an amount per window): a minute, a day or a month of UTC. */
export const QUOTA_WINDOWS = ['minute', 'day', 'month'] as const;
export type QuotaWindow = (typeof QUOTA_WINDOWS)[number];

/** How the API, the command line and the dashboard show a quota. */
interface QuotaDescription {
  /** Error code of a request or invocation that exceeds the quota. */
  readonly code: string;
  /** Name for people. */
  readonly label: string;
  readonly unit: 'count' | 'milliseconds' | 'bytes';
}

interface CountedAmount extends QuotaDescription {
  /** Computes the use of the amount from the counters of a window. */
  use(counts: UsageCounts): number;
}

/**
 * Amounts counted in windows. Each has a quota per minute, per day and per month. `tokens` are sampled tokens, and input tokens that were not cached.
 * `limits.lua` repeats the names, and `../usage/usage.lua` computes the same use.
 */
const COUNTED = {
  requests: { code: 'quota-requests', label: 'Requests', unit: 'count', use: ({ requests }) => requests },
  tokens: {
    code: 'quota-tokens',
    label: 'Tokens',
    unit: 'count',
    use: ({ inputTokens, cachedTokens, outputTokens }) => Math.max(0, inputTokens - cachedTokens) + outputTokens,
  },
  'gpu-ms': { code: 'quota-gpu-time', label: 'GPU time', unit: 'milliseconds', use: ({ gpuMs }) => gpuMs },
  'cpu-ms': { code: 'quota-cpu-time', label: 'CPU time', unit: 'milliseconds', use: ({ cpuMs }) => cpuMs },
} as const satisfies Record<string, CountedAmount>;
export type Counted = keyof typeof COUNTED;

type CountedCode = (typeof COUNTED)[Counted]['code'];
/** Error code of a counted quota that ends running invocations when they exceed it. Requests are counted only when an invocation is created. */
export type EndingQuotaCode = Exclude<CountedCode, 'quota-requests'>;
const endsRunning = (code: CountedCode): code is EndingQuotaCode => code !== 'quota-requests';
export const ENDING_QUOTA_CODES = Object.values(COUNTED)
  .map(({ code }) => code)
  .filter(endsRunning);

/**
 * Held amounts: what exists at once. An invocation is open until it ends.
 * - `concurrent-invocations`: a tenant's running invocations, or a function's open ones.
 * - `latency-invocations`: open invocations with granted latency targets; without this quota, no targets are granted.
 * - `storage-bytes`: stored values, files, vector indexes, and components with the records of their versions.
 * - `redis-bytes`: the same without the indexes, and also inputs, events, messages, logs and the records of invocations.
 */
const HELD_AMOUNTS = {
  'concurrent-invocations': { code: 'quota-concurrency', label: 'Running at once', unit: 'count' },
  'waiting-invocations': { code: 'quota-concurrency', label: 'Waiting in the queue', unit: 'count' },
  'latency-invocations': { code: 'quota-concurrency', label: 'With latency targets', unit: 'count' },
  schedules: { code: 'quota-schedules', label: 'Schedules', unit: 'count' },
  'kv-pages': { code: 'quota-pages', label: 'KV pages held', unit: 'count' },
  'storage-bytes': { code: 'quota-storage', label: 'Storage', unit: 'bytes' },
  'redis-bytes': { code: 'quota-storage', label: 'Kept in Redis', unit: 'bytes' },
  'disk-bytes': { code: 'quota-storage', label: 'Compiled versions on disk', unit: 'bytes' },
} as const satisfies Record<string, QuotaDescription>;
export type HeldQuota = keyof typeof HELD_AMOUNTS;

const COUNTED_NAMES = Object.keys(COUNTED) as Counted[];
export const HELD_QUOTAS = Object.keys(HELD_AMOUNTS) as HeldQuota[];

export type CountedQuota = `${Counted}-per-${QuotaWindow}`;

/** Name of a quota, the same in headers, API, command line and dashboard: `tokens-per-minute`, `kv-pages`. */
export type QuotaName = CountedQuota | HeldQuota;

export const QUOTA_NAMES: readonly QuotaName[] = [
  ...COUNTED_NAMES.flatMap((counted) => QUOTA_WINDOWS.map((window): QuotaName => `${counted}-per-${window}`)),
  ...HELD_QUOTAS,
];

export function isQuotaName(value: unknown): value is QuotaName {
  return (QUOTA_NAMES as readonly unknown[]).includes(value);
}

const COUNTED_NAME = new RegExp(`^(${COUNTED_NAMES.join('|')})-per-(${QUOTA_WINDOWS.join('|')})$`);

/** The counted amount and the window of a counted quota; null for a held quota. */
export function countedPart(quota: QuotaName): { readonly counted: Counted; readonly window: QuotaWindow } | null {
  const match = COUNTED_NAME.exec(quota);
  return match === null ? null : { counted: match[1] as Counted, window: match[2] as QuotaWindow };
}

/** The use of a counted amount, from the counters of a window. */
export function countedUse(counted: Counted, counts: UsageCounts): number {
  return COUNTED[counted].use(counts);
}

/** True for quotas that may be set for one function; the others apply to the tenant as a whole. */
export function mayBeSetForFunction(quota: QuotaName): boolean {
  return countedPart(quota) !== null || quota === 'concurrent-invocations';
}

/** The description of the amount that a quota bounds. */
function descriptionOf(quota: QuotaName): QuotaDescription & { readonly code: QuotaErrorCode } {
  const part = countedPart(quota);
  return part === null ? HELD_AMOUNTS[quota as HeldQuota] : COUNTED[part.counted];
}

export type QuotaErrorCode = CountedCode | (typeof HELD_AMOUNTS)[HeldQuota]['code'];

export function quotaErrorCode(quota: QuotaName): QuotaErrorCode {
  return descriptionOf(quota).code;
}

export function quotaUnit(quota: QuotaName): QuotaDescription['unit'] {
  return descriptionOf(quota).unit;
}

/** Readable name of a quota: `Tokens per day`. */
export function quotaLabel(quota: QuotaName): string {
  const part = countedPart(quota);
  const { label } = descriptionOf(quota);
  return part === null ? label : `${label} per ${part.window}`;
}

/** Kinds of spans in which usage is counted. A span is one minute, hour, day or month of UTC. The windows of quotas are spans other than hours. */
export const SPANS = ['minute', 'hour', 'day', 'month'] as const;
export type Span = (typeof SPANS)[number];

/** Lengths of the spans whose length is fixed: only months differ. */
const LENGTH_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const;

/** Number of the span that contains the time `atMs`, as in the keys of usage counters. Months count from year 0, other spans from the epoch. */
export function spanNumber(span: Span, atMs: number): number {
  if (span !== 'month') return Math.floor(atMs / LENGTH_MS[span]);
  const date = new Date(atMs);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

/** Start of a span, in ms since the epoch. `number` is the span's number as returned by {@link spanNumber}. */
export function spanStart(span: Span, number: number): number {
  return span === 'month' ? Date.UTC(Math.floor(number / 12), number % 12, 1) : number * LENGTH_MS[span];
}

/** End of the window that contains the time `atMs`, in ms since the epoch. The next window starts at this end. */
export function windowEnd(window: QuotaWindow, atMs: number): number {
  return spanStart(window, spanNumber(window, atMs) + 1);
}

/** Length in ms of the window that contains the time `atMs`. */
export function windowLength(window: QuotaWindow, atMs: number): number {
  return windowEnd(window, atMs) - spanStart(window, spanNumber(window, atMs));
}
