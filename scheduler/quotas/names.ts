/** Windows of the counted quotas. Each begins with a minute, day or month of UTC. */
export const QUOTA_WINDOWS = ['minute', 'day', 'month'] as const;
export type QuotaWindow = (typeof QUOTA_WINDOWS)[number];

/** Amounts counted in windows. `tokens` are embedded (not found in a cache) and sampled tokens. */
export const COUNTED = ['requests', 'tokens', 'gpu-ms', 'cpu-ms'] as const;
export type Counted = (typeof COUNTED)[number];

/**
 * Held amounts: running invocations; invocations waiting in line; KV pages; bytes of stored values, files and components; bytes of all
 * content in Redis (these plus inputs, events, messages and logs); bytes on disk.
 */
export const HELD = [
  'concurrent-invocations',
  'waiting-invocations',
  'kv-pages',
  'storage-bytes',
  'redis-bytes',
  'disk-bytes',
] as const;
export type Held = (typeof HELD)[number];

export type CountedQuota = `${Counted}-per-${QuotaWindow}`;

/** Name of a quota, the same in headers, API, command line and dashboard: `tokens-per-minute`, `kv-pages`. */
export type QuotaName = CountedQuota | Held;

export const QUOTA_NAMES: readonly QuotaName[] = [
  ...COUNTED.flatMap((counted) => QUOTA_WINDOWS.map((window): QuotaName => `${counted}-per-${window}`)),
  ...HELD,
];

export function isQuotaName(value: unknown): value is QuotaName {
  return (QUOTA_NAMES as readonly unknown[]).includes(value);
}

const COUNTED_NAME = /^(requests|tokens|gpu-ms|cpu-ms)-per-(minute|day|month)$/;

/** The counted amount and the window of a counted quota; null for a held quota. */
export function countedPart(quota: QuotaName): { readonly counted: Counted; readonly window: QuotaWindow } | null {
  const match = COUNTED_NAME.exec(quota);
  return match === null ? null : { counted: match[1] as Counted, window: match[2] as QuotaWindow };
}

/** True for quotas that may be set for one function; the others apply to the tenant as a whole. */
export function maybeOfFunction(quota: QuotaName): boolean {
  return countedPart(quota) !== null || quota === 'concurrent-invocations';
}

/** Error code of a request or invocation that exceeds a quota. */
export type QuotaErrorCode =
  | 'quota-requests'
  | 'quota-tokens'
  | 'quota-gpu-time'
  | 'quota-cpu-time'
  | 'quota-concurrency'
  | 'quota-pages'
  | 'quota-storage';

const COUNTED_CODES: Readonly<Record<Counted, QuotaErrorCode>> = {
  requests: 'quota-requests',
  tokens: 'quota-tokens',
  'gpu-ms': 'quota-gpu-time',
  'cpu-ms': 'quota-cpu-time',
};

export function quotaErrorCode(quota: QuotaName): QuotaErrorCode {
  const part = countedPart(quota);
  if (part !== null) return COUNTED_CODES[part.counted];
  if (quota === 'kv-pages') return 'quota-pages';
  return quota.endsWith('-bytes') ? 'quota-storage' : 'quota-concurrency';
}
