import { z } from '@hono/zod-openapi';
import { LATENCY_BOUNDS } from '#scheduler/invocations/types.ts';
import { AUDIT_CURSOR, KEY_NAME, MAX_LIFETIME_MS, SCOPES, TENANT_NAME, WEIGHT } from '#scheduler/tenants/rules.ts';
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
    weight: z.int().openapi({
      description: 'While several tenants wait, each gets a share in proportion to its weight',
      example: 100,
    }),
    suspended: z.boolean().openapi({
      description: "When true, gateways refuse the tenant's keys, and no invocation of the tenant starts",
    }),
    latency: z
      .object(latencyTargets)
      .nullable()
      .openapi({
        description: 'Latency targets of functions that state none themselves; null when the tenant has none',
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
      description: `While several tenants wait, each gets a share in proportion to its weight: ${WEIGHT.least} to ${WEIGHT.most}, ${WEIGHT.usual} for a new tenant`,
    }),
  suspended: z.boolean().optional().meta({
    description:
      "When true, gateways refuse the tenant's keys, and no invocation of the tenant starts. Running invocations continue.",
  }),
  latency: z.strictObject(latencyTargets).nullable().optional().meta({
    description:
      'Latency targets of functions that state none themselves, for new invocations; null for no targets. At most as many open invocations have targets as the quota `latency-invocations` allows; without this quota, none has.',
  }),
};
export const NewTenantSchema = z.strictObject({ name: tenantName, ...tenantSettings });
export const TenantChangeSchema = z.strictObject(tenantSettings);

export const ApiKeySchema = z
  .object({
    id: z.string().openapi({ description: 'Identifies the key without revealing it', example: 'key_3f9ac41e07b2' }),
    tenant: z.string(),
    name: z.string().openapi({ description: 'Name of the key; may be empty', example: 'ci' }),
    scopes: z.array(z.enum(SCOPES)).readonly(),
    createdAt: timestamp,
    expiresAt: timestamp.nullable(),
    lastUsedAt: timestamp
      .nullable()
      .openapi({ description: 'Last use, to the minute; null for a key that was never used' }),
  })
  .openapi('ApiKey');

export const CreatedKeySchema = ApiKeySchema.extend({
  apiKey: z
    .string()
    .openapi({ description: 'The key itself. No other response contains it: the platform stores only its hash.' }),
}).openapi('CreatedApiKey');

export const NewKeySchema = z.strictObject({
  name: z.string().regex(KEY_NAME, 'must have 1 to 64 printable characters'),
  scopes: z.array(z.enum(SCOPES)).min(1).max(SCOPES.length).readonly(),
  expiresAt: z.iso
    .datetime({ offset: true })
    .refine(isValidExpiry, 'must be in the future, within ten years')
    .optional(),
});

export const AuditEntrySchema = z
  .object({
    cursor: z.string().openapi({ description: 'Opaque; pass it as `before` to read earlier entries' }),
    at: timestamp,
    tenant: z.string(),
    actor: z
      .string()
      .openapi({ description: 'Id of the API key that made the change; `platform` for the platform itself' }),
    action: z.string().openapi({ example: 'key.create' }),
    target: z.string().openapi({ description: "Changed object: a key's id, `name@version`, a quota" }),
    details: z.record(z.string(), z.unknown()),
  })
  .openapi('AuditEntry');

export const AuditQuerySchema = z.object({
  tenant: tenantName
    .optional()
    .openapi({ description: 'Only changes of this tenant. By default, operators get the changes of all tenants.' }),
  before: z.string().regex(AUDIT_CURSOR, 'is not a cursor').optional().openapi({
    description: 'Cursor of an entry: only entries before it',
  }),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1000)
    .default(100)
    .openapi({ description: 'Maximum number of entries; the newest come first' }),
});

export const SecretSchema = z
  .object({
    name: z.string().openapi({ example: 'OPENAI_KEY' }),
    revision: z.int().openapi({
      description:
        'Grows with every new value of the secret. A function version keeps the revision that it was deployed with.',
    }),
    changedAt: timestamp,
    changedBy: z.string().openapi({ description: 'Id of the API key that last changed the secret' }),
    usedBy: z
      .array(z.object({ function: z.string(), version: z.string(), revision: z.int() }))
      .readonly()
      .openapi({ description: 'Served function versions that use the secret, each with the revision that it uses' }),
  })
  .openapi('Secret', { description: 'A secret without its value: no response contains the value of a secret.' });

/** A tenant. While several tenants wait, each gets a share in proportion to its `weight`, which is 1 to 1000, and 100 for a new tenant. */
export type Tenant = z.infer<typeof TenantSchema>;
export type TenantChange = z.infer<typeof TenantChangeSchema>;
export type ApiKey = z.infer<typeof ApiKeySchema>;
export type NewKey = z.infer<typeof NewKeySchema>;
/** A new key, with its text in `apiKey`. No other response contains that text. */
export type CreatedKey = z.infer<typeof CreatedKeySchema>;
/** A record of one administrative change: actor, action, target and time. It never contains a secret. */
export type AuditEntry = z.infer<typeof AuditEntrySchema>;
export type AuditQuery = z.infer<typeof AuditQuerySchema>;
/** A secret without its value: no client can read the value back. */
export type Secret = z.infer<typeof SecretSchema>;

function isValidExpiry(time: string): boolean {
  const lifetimeMs = Date.parse(time) - Date.now();
  return lifetimeMs > 0 && lifetimeMs <= MAX_LIFETIME_MS;
}
