/** Windows of the quotas that count. All begin with the minute, day or month of UTC. */
export const QUOTA_WINDOWS = ['minute', 'day', 'month'] as const;
export type QuotaWindow = (typeof QUOTA_WINDOWS)[number];

/** What is counted in windows. `tokens` are those embedded (not those found in a cache) and sampled. */
export const COUNTED = ['requests', 'tokens', 'gpu-ms', 'cpu-ms'] as const;
export type Counted = (typeof COUNTED)[number];

/**
 * What is held: invocations that run, those that wait in line, KV pages, bytes of stored values, files and components, bytes of all that Redis
 * keeps (those and inputs, events, messages and logs), bytes on disk.
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

/** Name of a quota, the same in headers, API, command and dashboard: `tokens-per-minute`, `kv-pages`. */
export type QuotaName = CountedQuota | Held;

export const QUOTA_NAMES: readonly QuotaName[] = [
  ...COUNTED.flatMap((counted) => QUOTA_WINDOWS.map((window): QuotaName => `${counted}-per-${window}`)),
  ...HELD,
];

export function isQuotaName(value: unknown): value is QuotaName {
  return (QUOTA_NAMES as readonly unknown[]).includes(value);
}

const COUNTED_NAME = /^(requests|tokens|gpu-ms|cpu-ms)-per-(minute|day|month)$/;

/** What a counted quota counts, and in which window; null for what is held. */
export function countedPart(quota: QuotaName): { readonly counted: Counted; readonly window: QuotaWindow } | null {
  const match = COUNTED_NAME.exec(quota);
  return match === null ? null : { counted: match[1] as Counted, window: match[2] as QuotaWindow };
}

/** Quotas that one function of a tenant may have for itself; the others are of the tenant as a whole. */
export function maybeOfFunction(quota: QuotaName): boolean {
  return countedPart(quota) !== null || quota === 'concurrent-invocations';
}

/** The error code of whoever meets a quota that has no more. */
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
