import { z } from '@hono/zod-openapi';
import { LATENCY_BOUNDS } from '#scheduler/quotas/latency.ts';
import { AUDIT_CURSOR, KEY_NAME, MAX_LIFETIME_MS, TENANT_NAME, WEIGHT } from '#scheduler/tenants/rules.ts';
import { SCOPES } from '#scheduler/tenants/scopes.ts';
import { timestamp } from './timestamp.ts';

export const tenantName = z.string().regex(TENANT_NAME, {
  error: 'must begin with a lower-case letter and hold lower-case letters, digits and "-", 63 at most',
});

const latencyTarget = ([least, most]: readonly [number, number]) => z.int().min(least).max(most);
const latencyTargets = {
  firstTokenMs: latencyTarget(LATENCY_BOUNDS.firstTokenMs),
  perTokenMs: latencyTarget(LATENCY_BOUNDS.perTokenMs),
};

export const TenantSchema = z
  .object({
    name: z.string().openapi({ example: 'acme' }),
    createdAt: timestamp,
    weight: z.int().openapi({ description: 'Weight in the fair share between waiting tenants', example: 100 }),
    suspended: z.boolean().openapi({ description: 'Gateways refuse its keys, and none of its invocations start' }),
    latency: z
      .object(latencyTargets)
      .nullable()
      .openapi({
        description: 'Latency targets for invocations of functions that state none; null: none',
        example: { firstTokenMs: 300, perTokenMs: 40 },
      }),
  })
  .openapi('Tenant');

const tenantSettings = {
  weight: z
    .int()
    .min(WEIGHT.least)
    .max(WEIGHT.most)
    .optional()
    .meta({
      description: `Weight in the fair share between waiting tenants: ${WEIGHT.least} to ${WEIGHT.most}, ${WEIGHT.usual} for a new tenant`,
    }),
  suspended: z.boolean().optional().meta({
    description: 'Gateways refuse its keys, and none of its invocations start; running invocations continue',
  }),
  latency: z.strictObject(latencyTargets).nullable().optional().meta({
    description:
      'Latency targets for new invocations of functions that state none, within the quota `latency-invocations`; null: none',
  }),
};
export const NewTenantSchema = z.strictObject({ name: tenantName, ...tenantSettings });
export const TenantChangeSchema = z.strictObject(tenantSettings);

export const ApiKeySchema = z
  .object({
    id: z.string().openapi({ description: 'Names the key without revealing it', example: 'key_3f9ac41e07b2' }),
    tenant: z.string(),
    name: z.string().openapi({ description: 'Name of the key; may be empty', example: 'ci' }),
    scopes: z.array(z.enum(SCOPES)).readonly(),
    createdAt: timestamp,
    expiresAt: timestamp.nullable(),
    lastUsedAt: timestamp.nullable().openapi({ description: 'To the minute; null when it was never used' }),
  })
  .openapi('ApiKey');

export const CreatedKeySchema = ApiKeySchema.extend({
  apiKey: z
    .string()
    .openapi({ description: 'The key itself, which only this response contains; the platform stores its hash' }),
}).openapi('CreatedApiKey');

export const NewKeySchema = z.strictObject({
  name: z.string().regex(KEY_NAME, 'must have 1 to 64 printable characters'),
  scopes: z.array(z.enum(SCOPES)).min(1).max(SCOPES.length).readonly(),
  expiresAt: z.iso.datetime({ offset: true }).refine(isAhead, 'must be in the future, within ten years').optional(),
});

export const AuditEntrySchema = z
  .object({
    cursor: z.string().openapi({ description: 'Opaque; pass it to read earlier entries' }),
    at: timestamp,
    tenant: z.string(),
    actor: z.string().openapi({ description: 'Id of the acting key; `platform` for the platform itself' }),
    action: z.string().openapi({ example: 'key.create' }),
    target: z.string().openapi({ description: "Changed object: a key's id, `name@version`, a quota" }),
    details: z.record(z.string(), z.unknown()),
  })
  .openapi('AuditEntry');

export const AuditQuerySchema = z.object({
  tenant: tenantName.optional().openapi({ description: 'Only this tenant; operators get all tenants by default' }),
  before: z.string().regex(AUDIT_CURSOR, 'is not a cursor').optional().openapi({
    description: 'Cursor: only earlier changes',
  }),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1000)
    .default(100)
    .openapi({ description: 'Most entries to return, newest first' }),
});

export const SecretSchema = z
  .object({
    name: z.string().openapi({ example: 'OPENAI_KEY' }),
    revision: z.int().openapi({
      description: 'Grows with every value; a function version keeps the revision that it was deployed with',
    }),
    changedAt: timestamp,
    changedBy: z.string().openapi({ description: 'Id of the key that changed it' }),
    usedBy: z
      .array(z.object({ function: z.string(), version: z.string(), revision: z.int() }))
      .readonly()
      .openapi({ description: 'Served versions that use it, each with its revision' }),
  })
  .openapi('Secret', { description: 'A secret without its value, which no request returns.' });

/** A tenant. Its weight in the fair share is 1 to 1000, 100 for a new tenant. */
export type Tenant = z.infer<typeof TenantSchema>;
export type TenantChange = z.infer<typeof TenantChangeSchema>;
export type ApiKey = z.infer<typeof ApiKeySchema>;
export type NewKey = z.infer<typeof NewKeySchema>;
/** A new key in clear text; no other response shows it. */
export type CreatedKey = z.infer<typeof CreatedKeySchema>;
/** An administrative act: its actor, action, subject and time. Never holds a secret. */
export type AuditEntry = z.infer<typeof AuditEntrySchema>;
export type AuditQuery = z.infer<typeof AuditQuerySchema>;
/** A secret without its value, which no client can read back. */
export type Secret = z.infer<typeof SecretSchema>;

function isAhead(time: string): boolean {
  const aheadMs = Date.parse(time) - Date.now();
  return aheadMs > 0 && aheadMs <= MAX_LIFETIME_MS;
}
