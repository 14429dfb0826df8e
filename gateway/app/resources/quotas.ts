import type { QuotaName } from '#scheduler/quotas/names.ts';
import type { Call } from '../control.ts';
import type { MinuteRow, QuotaStatus, UsageRow } from '../schemas/quotas.ts';

export type { MinuteRow, QuotaStatus, UsageRow };

/** Lengths of the spans of usage, in UTC. */
export const SPANS = ['hour', 'day', 'month'] as const;
export type Span = (typeof SPANS)[number];

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

export interface UsageQuery {
  readonly tenant: string;
  /** ISO 8601; the start of this month by default. The span that contains this time counts in full. */
  readonly from?: string | undefined;
  /** Now by default. */
  readonly to?: string | undefined;
  readonly by: Span;
  /** Returns one row per function instead of one row in all. */
  readonly perFunction: boolean;
}

/** Limits and usage. A key sees those of its own tenant; an `operator` key sees those of every tenant, and sets limits. */
export interface Quotas {
  /** Lists the quotas that bind a tenant or one of its functions; with `function`, those of the tenant and of that function only. */
  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]>;
  /** Operators only. Returns the limit that then binds. A change without `expiresAt` ends an override. Throws `invalid-quota`, `unknown-tenant`. */
  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null>;
  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]>;
  /** The last `minutes`, at most 180. */
  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]>;
}
