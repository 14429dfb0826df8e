import type { QuotaName } from '#scheduler/quotas/names.ts';
import type { Call } from '../control.ts';

/** One limit and how much of it is used. The one number that headers, API, command and dashboard show. */
export interface QuotaStatus {
  readonly quota: QuotaName;
  /** Null for the tenant as a whole. */
  readonly function: string | null;
  readonly limit: number;
  readonly used: number;
  /** When the window ends, ISO 8601; null for what is held rather than counted. */
  readonly resetsAt: string | null;
  /** `default` of the platform, `tenant` as set for it, `override` for a time. */
  readonly source: 'default' | 'tenant' | 'override';
  readonly override?: { readonly author: string; readonly expiresAt: string; readonly reason: string } | undefined;
}

export interface QuotaChange {
  readonly quota: QuotaName;
  /** For one function of the tenant; the whole tenant when absent. */
  readonly function?: string | undefined;
  /** Null takes the setting away. */
  readonly limit: number | null;
  /** Makes it an override until then, ISO 8601. */
  readonly expiresAt?: string | undefined;
  readonly reason?: string | undefined;
}

/** What was used in one span of time. All sums; times in ms. */
export interface UsageRow {
  /** Start of the span, ISO 8601. */
  readonly at: string;
  readonly tenant: string;
  /** Null in a sum over functions. */
  readonly function: string | null;
  /** Invocations that clients made: what the quota of requests counts. */
  readonly requests: number;
  /** Those, and the children that they launched. */
  readonly invocations: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
  readonly gpuMs: number;
  readonly cpuMs: number;
  readonly wallMs: number;
  readonly queuedMs: number;
  /** KV pages held, times the seconds they were held. */
  readonly pageSeconds: number;
}

export interface UsageQuery {
  readonly tenant: string;
  /** ISO 8601; the start of this month by default. Spans that begin before are whole all the same. */
  readonly from?: string | undefined;
  /** Now by default. */
  readonly to?: string | undefined;
  readonly by: 'hour' | 'day' | 'month';
  /** One row per function instead of one for all. */
  readonly perFunction: boolean;
}

/** Per minute, for the dashboard: newest last. Minutes without anything are left out. */
export interface MinuteRow {
  /** ISO 8601. */
  readonly at: string;
  readonly invocations: number;
  readonly outputTokens: number;
  /** First tokens seen, and the median and 95th percentile of the time from submission to them, ms. */
  readonly firstTokens: number;
  readonly firstTokenMs: { readonly p50: number; readonly p95: number } | null;
  /** Failed invocations by failure code. */
  readonly failures: Readonly<Record<string, number>>;
  /** Refused requests by error code. */
  readonly rejections: Readonly<Record<string, number>>;
}

/** Limits and usage. A key may see those of its own tenant; one with the scope `operator` those of every tenant, and set limits. */
export interface Quotas {
  /** Every quota that binds a tenant or one of its functions; with `function` those of the tenant and that function only. */
  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]>;
  /** The limit that binds afterwards, or null. A limit for good ends an override. Throws `invalid-quota`, `unknown-tenant`. Operators only. */
  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null>;
  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]>;
  /** The last `minutes`, at most 180. */
  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]>;
}
