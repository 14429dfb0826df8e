import { z } from '@hono/zod-openapi';
import { MAX_MESSAGE } from '#scheduler/functions/aliases.ts';
import { timestamp } from './timestamp.ts';

/** Maximum characters of any text in a request about releases. The control plane applies the smaller limit of each field, with its own error. */
export const MAX_TEXT = 1000;
/** Maximum shares in a request. The control plane applies a smaller limit, as with texts. */
const MAX_LISTED = 64;

const ManifestSchema = z
  .looseObject({
    name: z.string(),
    description: z.string().optional(),
    input: z.unknown().optional().openapi({ description: 'JSON schema (2020-12) of the input; lists leave it out' }),
  })
  .openapi('Manifest', {
    description:
      'The contents of pie.json. `environment` has `(sealed)` in place of each value: values are never shown.',
  });

const ShareSchema = z
  .object({
    version: z.string(),
    weight: z.int().openapi({ description: 'Percent; those of an alias sum to 100', example: 90 }),
  })
  .openapi('Share');

export const AliasSchema = z
  .object({
    alias: z.string().openapi({ example: 'live' }),
    shares: z.array(ShareSchema).readonly(),
    revision: z.int().openapi({ description: 'Grows with every change' }),
    changedAt: timestamp,
    changedBy: z.string().openapi({ description: 'Id of the key that changed it last' }),
    message: z.string().optional(),
    tag: z.literal(true).optional().openapi({ description: 'True for a tag: no deploy moves it' }),
    restores: z.int().optional().openapi({ description: 'Set after a rollback: the revision that it restored' }),
  })
  .openapi('Alias');

const text = z.string().max(MAX_TEXT);
const message = text.optional().describe(`Reason, for people; ${MAX_MESSAGE} characters at most`);
const ifRevision = z
  .int()
  .min(0)
  .optional()
  .describe('Refused with `conflict` unless the alias has this revision; 0 means that the alias must not exist');

export const SetAliasSchema = z.strictObject({
  shares: z
    .array(z.strictObject({ version: text.describe('A version, its first digits, or a tag'), weight: z.number() }))
    .max(MAX_LISTED)
    .describe('Versions, and their whole percents, which sum to 100')
    .readonly(),
  message,
  ifRevision,
});

export const RollbackRequestSchema = z.strictObject({
  alias: text.optional().describe('`live` by default'),
  to: text.optional().describe('A version, its first digits, or a tag; one step back by default'),
  message,
  ifRevision,
  dryRun: z.boolean().optional().describe('Only say what would change'),
});

const DifferenceSchema = z
  .object({
    field: z.string().openapi({ example: 'limits.pages' }),
    from: z.string().nullable(),
    to: z.string().nullable(),
  })
  .openapi('Difference');

export const DrainingSchema = z
  .object({
    version: z.string(),
    unfinished: z.int().openapi({ description: 'Invocations of it that wait or run' }),
  })
  .openapi('Draining');

const VersionAliasSchema = z.object({ alias: z.string(), weight: z.int(), tag: z.literal(true).optional() });

export const FunctionSchema = z
  .object({
    name: z.string().openapi({ example: 'text-completion' }),
    version: z.string().openapi({ description: 'Content hash of manifest and component', example: '3f9ac41e07b2' }),
    manifest: ManifestSchema,
    componentHash: z.string().openapi({ description: 'sha256, hexadecimal' }),
    componentBytes: z.int(),
    engine: z.string().optional().openapi({
      description: 'sha256 of the engine on which a script runs, hexadecimal; absent for a component',
    }),
    createdAt: timestamp,
    createdBy: z.string().optional().openapi({ description: 'Id of the key that deployed it first' }),
    message: z.string().optional(),
    live: z.array(ShareSchema).readonly().optional().openapi({
      description: 'In a list of functions: the versions that the name without an alias runs; empty for none',
    }),
    aliases: z
      .array(VersionAliasSchema)
      .readonly()
      .optional()
      .openapi({ description: 'In a list of versions: the aliases that serve it, each with its weight in percent' }),
    quarantinedAt: timestamp.optional().openapi({
      description: 'In lists: the start of its quarantine, during which it does not run; see the error `quarantined`',
    }),
    platform: z
      .literal(true)
      .optional()
      .openapi({ description: 'True for a function of the platform that the tenant has not replaced by its own' }),
  })
  .openapi('Function');

const warnings = z
  .array(z.string())
  .readonly()
  .openapi({ description: 'Parts of the manifest that will probably not work as intended' });
const grants = z.array(z.string()).readonly().openapi({ description: 'Grants of the manifest, in words' });

const DeployReportSchema = z.object({
  componentBytes: z.int(),
  moduleBytes: z.int().nullable(),
  cached: z.boolean().openapi({ description: 'True when an earlier build was reused' }),
  buildMs: z.number().nullable(),
  steps: z.array(z.object({ name: z.string(), ms: z.number() })).readonly(),
  coldStartMs: z.number().nullable().openapi({ description: 'Measured time of a launch with an empty pool' }),
  warmStartMs: z
    .number()
    .nullable()
    .openapi({ description: 'Measured time to take a ready instance from the pool, before its first call' }),
});

export const DeployedSchema = FunctionSchema.extend({
  created: z.boolean().openapi({ description: 'False when this content was deployed before' }),
  alias: AliasSchema.nullable().openapi({
    description: 'The alias that serves it now; null when no alias was changed',
  }),
  report: DeployReportSchema,
  grants,
  warnings,
}).openapi('Deployed');

export const DeployPlanSchema = FunctionSchema.pick({
  version: true,
  manifest: true,
  componentHash: true,
  componentBytes: true,
})
  .extend({
    exists: z.boolean().openapi({ description: 'True when the version already exists' }),
    alias: z.string().nullable().openapi({ description: 'The alias that the deploy would move; null for none' }),
    from: z.array(ShareSchema).readonly().openapi({ description: 'The versions that this alias serves now' }),
    changes: z.array(DifferenceSchema).readonly(),
    grants,
    warnings,
  })
  .openapi('DeployPlan', { description: 'The effects that a deploy would have; nothing was stored.' });

export const RollbackSchema = z
  .object({
    alias: AliasSchema,
    from: z.array(ShareSchema).readonly(),
    to: z.array(ShareSchema).readonly(),
    changes: z.array(DifferenceSchema).readonly(),
    dryRun: z.boolean(),
  })
  .openapi('Rollback');

/** `pie.json`, checked. The app reads `name` and `input`, and shows the other members unchanged. */
export type FunctionManifest = z.infer<typeof ManifestSchema>;
/** One version's share of an alias's invocations: whole percent from 1 to 100. The weights of an alias sum to 100. */
export type Share = z.infer<typeof ShareSchema>;
/** A name for one version, or for several weighted versions. See `SetAlias.ifRevision` for its revision. */
export type Alias = z.infer<typeof AliasSchema>;
/** An alias that serves a version, with the version's percent of the alias's invocations. */
export type VersionAlias = z.infer<typeof VersionAliasSchema>;
/** One difference between the previously served version and the new one. `from` and `to` are texts for people. */
export type Difference = z.infer<typeof DifferenceSchema>;
export type SetAlias = z.infer<typeof SetAliasSchema>;
export type RollbackRequest = z.infer<typeof RollbackRequestSchema>;
/** A removed version, and the number of its invocations that have not ended. */
export type Draining = z.infer<typeof DrainingSchema>;
export type FunctionVersion = z.infer<typeof FunctionSchema>;
/** A deployed version, with the outcome of its deploy. */
export type Deployed = z.infer<typeof DeployedSchema>;
/** The build's report on the version; null for a value that was not measured. Times in ms, sizes in bytes. */
export type DeployReport = z.infer<typeof DeployReportSchema>;
/** The response to `pie deploy --dry-run`; nothing is stored. */
export type DeployPlan = z.infer<typeof DeployPlanSchema>;
export type Rollback = z.infer<typeof RollbackSchema>;
