import type { Call } from '../control.ts';
import type { MinuteRow, QuotaChange, QuotaStatus, UsageQuery, UsageRow } from '../schemas/quotas.ts';

export type { MinuteRow, QuotaChange, QuotaStatus, UsageQuery, UsageRow };

/** Lengths of the spans of usage, in UTC. */
export const SPANS = ['hour', 'day', 'month'] as const;
export type Span = (typeof SPANS)[number];

/** Limits and usage. A key sees those of its own tenant; an `operator` key sees those of every tenant, and sets limits. */
export interface Quotas {
  /** Lists the quotas of a tenant and of its functions; with `fn`, those of the whole tenant and of that function. */
  status(call: Call, tenant: string, fn?: string): Promise<readonly QuotaStatus[]>;
  /**
   * Operators only. Returns the limit that applies after the change; null for none. A change without `expiresAt` ends an override.
   * Throws `invalid-quota`, `unknown-tenant`, `unknown-function`.
   */
  set(call: Call, tenant: string, change: QuotaChange): Promise<QuotaStatus | null>;
  usage(call: Call, query: UsageQuery): Promise<readonly UsageRow[]>;
  /** Usage in each of the last `minutes` minutes, at most 180. */
  minutes(call: Call, tenant: string, minutes: number): Promise<readonly MinuteRow[]>;
}
