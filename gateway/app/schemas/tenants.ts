import { z } from '@hono/zod-openapi';
import { SCOPES } from '#scheduler/tenants/scopes.ts';
import { timestamp } from './timestamp.ts';

export const TenantSchema = z
  .object({
    name: z.string().openapi({ example: 'acme' }),
    createdAt: timestamp,
    weight: z.int().openapi({ description: 'Weight in the fair share between waiting tenants', example: 100 }),
    suspended: z.boolean().openapi({ description: 'Gateways refuse its keys, and none of its invocations start' }),
    latency: z
      .object({ firstTokenMs: z.int(), perTokenMs: z.int() })
      .nullable()
      .openapi({
        description: 'Latency targets for invocations of functions that state none; null: none',
        example: { firstTokenMs: 300, perTokenMs: 40 },
      }),
  })
  .openapi('Tenant');

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
export type ApiKey = z.infer<typeof ApiKeySchema>;
/** A new key in clear text; no other response shows it. */
export type CreatedKey = z.infer<typeof CreatedKeySchema>;
/** An administrative act: its actor, action, subject and time. Never holds a secret. */
export type AuditEntry = z.infer<typeof AuditEntrySchema>;
/** A secret without its value, which no client can read back. */
export type Secret = z.infer<typeof SecretSchema>;
