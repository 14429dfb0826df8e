import { z } from '@hono/zod-openapi';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { LIMIT_SOURCES, MAX_REASON_LENGTH } from '#scheduler/quotas/limits.ts';
import { QUOTA_NAMES, type QuotaName } from '#scheduler/quotas/names.ts';
import { SPANS } from '../bounds.ts';

import { tenantName } from './tenants.ts';
import { timestamp } from './timestamp.ts';

export const QuotaSchema = z
  .object({
    quota: z.enum(QUOTA_NAMES as [QuotaName, ...QuotaName[]]),
    function: z.string().nullable().openapi({ description: 'Null for the tenant as a whole' }),
    limit: z.int(),
    used: z.number(),
    resetsAt: timestamp
      .nullable()
      .openapi({ description: 'End of the window; null for a quota on an amount held at once' }),
    source: z.enum(LIMIT_SOURCES),
    override: z.object({ author: z.string(), expiresAt: timestamp, reason: z.string() }).optional(),
  })
  .openapi('Quota', { description: 'A limit, and how much of it is used.' });

const functionName = z.string().regex(FUNCTION_NAME, 'is not the name of a function');
const time = z.iso.datetime({ offset: true, error: 'is not an ISO 8601 time, such as 2026-11-20T05:12:00Z' });

export const QuotaQuerySchema = z.object({
  tenant: tenantName.optional().openapi({ description: "Operators only; the key's own tenant by default" }),
  function: functionName
    .optional()
    .openapi({ description: 'Only the quotas of the whole tenant and of this function' }),
});

export const QuotaChangeSchema = z.strictObject({
  quota: z
    .string()
    .max(64)
    .meta({ description: 'Name of the quota', examples: [QUOTA_NAMES[0]] }),
  tenant: tenantName.optional().meta({ description: "The key's own tenant by default" }),
  function: z
    .string()
    .max(64)
    .optional()
    .meta({ description: 'Function that the limit binds; the whole tenant by default' }),
  limit: z.number().nullable().meta({ description: 'A whole number; null removes the setting' }),
  expiresAt: time.optional().meta({ description: 'Makes the limit an override that ends at this time' }),
  reason: z
    .string()
    .max(MAX_REASON_LENGTH)
    .regex(/^[^\p{C}\p{Zl}\p{Zp}]*$/u, 'holds characters that cannot be shown')
    .optional(),
});

const count = z.int().min(0);
const milliseconds = z.number().min(0).openapi({ description: 'Milliseconds' });

export const UsageQuerySchema = z.object({
  tenant: tenantName.optional().openapi({ description: "Operators only; the key's own tenant by default" }),
  /** The span that contains this time counts in full. */
  from: time.optional().openapi({ description: 'The start of this month by default' }),
  to: time.optional().openapi({ description: 'Now by default' }),
  by: z.enum(SPANS).default('day').openapi({ description: 'Length of a span, in UTC' }),
  'per-function': z.enum(['true', 'false']).default('false').openapi({ description: 'A row for each function' }),
});

export const UsageRowSchema = z
  .object({
    at: timestamp.openapi({ description: 'Start of the span' }),
    tenant: z.string(),
    function: z.string().nullable().openapi({
      description: 'Null in a sum over functions; `-` in the sum over those beyond the first 2,047 of a span',
    }),
    requests: count.openapi({ description: 'Invocations that clients made' }),
    invocations: count.openapi({ description: 'Invocations that clients made, and the children that these launched' }),
    succeeded: count,
    failed: count,
    cancelled: count,
    inputTokens: count,
    outputTokens: count,
    cachedTokens: count.openapi({ description: 'Input tokens found in the prefix cache' }),
    gpuMs: milliseconds,
    cpuMs: milliseconds,
    wallMs: milliseconds.openapi({ description: 'Time of the runs, without time while they were preempted' }),
    queuedMs: milliseconds,
    pageSeconds: z.number().min(0).openapi({ description: 'KV pages held, times the seconds they were held' }),
  })
  .openapi('UsageRow');

const byCode = z.record(z.string(), count);

export const MinuteSchema = z
  .object({
    at: timestamp.openapi({ description: 'Start of the minute' }),
    invocations: count,
    outputTokens: count,
    firstTokens: count.openapi({ description: 'Invocations of clients that sent their first message' }),
    firstTokenMs: z.object({ p50: z.number(), p95: z.number() }).nullable().openapi({
      description: 'From the submission to the first message, milliseconds; at most 19 % above the measured value',
    }),
    failures: byCode.openapi({ description: 'Failed invocations by failure code' }),
    rejections: byCode.openapi({ description: 'Refused requests by error code' }),
  })
  .openapi('Minute');

/** One limit and its use. Headers, API, command and dashboard all show these numbers. */
export type QuotaStatus = z.infer<typeof QuotaSchema>;
export type QuotaFilter = z.infer<typeof QuotaQuerySchema>;
export type QuotaChange = Omit<z.infer<typeof QuotaChangeSchema>, 'quota' | 'tenant'> & { readonly quota: QuotaName };
export type UsageQuery = Omit<z.infer<typeof UsageQuerySchema>, 'tenant' | 'per-function'> & {
  readonly tenant: string;
  /** True for one row per function in each span, instead of one row for all functions. */
  readonly perFunction: boolean;
};
/** Usage in one span of time. All numbers are sums; times in ms. */
export type UsageRow = z.infer<typeof UsageRowSchema>;
/** Per-minute numbers for the dashboard, newest last. Minutes without activity are left out. */
export type MinuteRow = z.infer<typeof MinuteSchema>;
