import type { QuotaName } from '#scheduler/quotas/names.ts';
import type { Call } from '../control.ts';

/** One limit and its use. Headers, API, command and dashboard all show this number. */
export interface QuotaStatus {
  readonly quota: QuotaName;
  /** Null for the tenant as a whole. */
  readonly function: string | null;
  readonly limit: number;
  readonly used: number;
  /** End of the window, ISO 8601; null for a quota on held resources rather than a count. */
  readonly resetsAt: string | null;
  /** Source of the limit: the platform's `default`, set for the `tenant`, or a temporary `override`. */
  readonly source: 'default' | 'tenant' | 'override';
  readonly override?: { readonly author: string; readonly expiresAt: string; readonly reason: string } | undefined;
}

export interface QuotaChange {
  readonly quota: QuotaName;
  /** A function of the tenant; the whole tenant when absent. */
  readonly function?: string | undefined;
  /** Null removes the setting. */
  readonly limit: number | null;
  /** Makes the limit an override until this time, ISO 8601. */
  readonly expiresAt?: string | undefined;
  readonly reason?: string | undefined;
}

/** Usage in one span of time. All numbers are sums; times in ms. */
export interface UsageRow {
  /** Start of the span, ISO 8601. */
  readonly at: string;
  readonly tenant: string;
  /** Null in a sum over functions. */
  readonly function: string | null;
  /** Invocations that clients made; the quota of requests counts these. */
  readonly requests: number;
  /** Invocations that clients made, and their children. */
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
  /** KV pages held, times the seconds held. */
  readonly pageSeconds: number;
}

export interface UsageQuery {
  readonly tenant: string;
  /** ISO 8601; the start of this month by default. A span that begins earlier still counts in full. */
  readonly from?: string | undefined;
  /** Now by default. */
  readonly to?: string | undefined;
  readonly by: 'hour' | 'day' | 'month';
  /** Returns one row per function instead of one row in all. */
  readonly perFunction: boolean;
}

/** Per-minute numbers for the dashboard, newest last. Minutes without activity are left out. */
export interface MinuteRow {
  /** ISO 8601. */
  readonly at: string;
  readonly invocations: number;
  readonly outputTokens: number;
  /** First tokens, and the median and 95th percentile of the time from submission to them, ms. */
  readonly firstTokens: number;
  readonly firstTokenMs: { readonly p50: number; readonly p95: number } | null;
  /** Failed invocations by failure code. */
  readonly failures: Readonly<Record<string, number>>;
  /** Refused requests by error code. */
  readonly rejections: Readonly<Record<string, number>>;
}

/** Limits and usage. A key sees those of its own tenant; an `operator` key sees those of every tenant, and sets limits. */
export interface Quotas {
  /** Lists the quotas that bind a tenant or one of its functions; with `function`, those of the tenant and of that function only. */
  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]>;
  /** Operators only. Returns the limit that then binds. A permanent one ends an override. Throws `invalid-quota`, `unknown-tenant`. */
  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null>;
  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]>;
  /** The last `minutes`, at most 180. */
  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]>;
}
