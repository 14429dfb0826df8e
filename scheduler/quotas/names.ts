/** Windows of the quotas that count. All begin with the minute, day or month of UTC. */
export const QUOTA_WINDOWS = ['minute', 'day', 'month'] as const;
export type QuotaWindow = (typeof QUOTA_WINDOWS)[number];

/** What is counted in windows. `tokens` are those embedded (not those found in a cache) and sampled. */
export const COUNTED = ['requests', 'tokens', 'gpu-ms', 'cpu-ms'] as const;
export type Counted = (typeof COUNTED)[number];

/** What is held: invocations that run, those that wait in line, KV pages, bytes of stored values, files and components. */
export const HELD = ['concurrent-invocations', 'waiting-invocations', 'kv-pages', 'storage-bytes'] as const;
export type Held = (typeof HELD)[number];

/** Name of a quota, the same in headers, API, command and dashboard: `tokens-per-minute`, `kv-pages`. */
export type QuotaName = `${Counted}-per-${QuotaWindow}` | Held;

export const QUOTA_NAMES: readonly QuotaName[] = [
  ...COUNTED.flatMap((counted) => QUOTA_WINDOWS.map((window): QuotaName => `${counted}-per-${window}`)),
  ...HELD,
];
