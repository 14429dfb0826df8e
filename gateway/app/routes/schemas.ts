import { z } from '@hono/zod-openapi';
import { DEFAULT_LIMITS } from '../context.ts';
import { CODES } from '../errors/codes.ts';

/** Schemas of the API's answers. The types of `control.ts` are assignable to them; `routes.test.ts` checks real answers against them. */

const timestamp = z.string().openapi({ description: 'ISO 8601', example: '2026-11-20T05:12:00.000Z' });

export const ManifestSchema = z
  .looseObject({
    name: z.string(),
    description: z.string().optional(),
    input: z.unknown().optional().openapi({ description: 'JSON schema (2020-12) of the input' }),
  })
  .openapi('Manifest', {
    description:
      'What pie.json says about the function. `environment` has `(sealed)` in place of each value: they are never shown.',
  });

export const ShareSchema = z
  .object({
    version: z.string(),
    weight: z.int().openapi({ description: 'Percent; those of an alias sum to 100', example: 90 }),
  })
  .openapi('Share');

export const AliasSchema = z
  .object({
    alias: z.string().openapi({ example: 'live' }),
    shares: z.array(ShareSchema),
    revision: z.int().openapi({ description: 'Grows with every change' }),
    changedAt: timestamp,
    changedBy: z.string().openapi({ description: 'Id of the key that changed it last' }),
    message: z.string().optional(),
    tag: z.literal(true).optional().openapi({ description: 'It names one version for good' }),
    restores: z.int().optional().openapi({ description: 'A rollback made it: as it was at that revision' }),
  })
  .openapi('Alias');

export const DifferenceSchema = z
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

export const FunctionSchema = z
  .object({
    name: z.string().openapi({ example: 'text-completion' }),
    version: z.string().openapi({ description: 'Content hash of manifest and component', example: '3f9ac41e07b2' }),
    manifest: ManifestSchema,
    componentHash: z.string().openapi({ description: 'sha256, hexadecimal' }),
    componentBytes: z.int(),
    createdAt: timestamp,
    createdBy: z.string().optional().openapi({ description: 'Id of the key that deployed it first' }),
    message: z.string().optional(),
    live: z
      .array(ShareSchema)
      .optional()
      .openapi({ description: 'In a list of functions: what the bare name means; empty when nothing' }),
    aliases: z
      .array(z.object({ alias: z.string(), weight: z.int(), tag: z.literal(true).optional() }))
      .optional()
      .openapi({ description: 'In a list of versions: the names that serve it, with its percent of each' }),
    quarantinedAt: timestamp.optional().openapi({
      description: 'In lists: since when it is quarantined, and so not run; see the error `quarantined`',
    }),
    platform: z
      .literal(true)
      .optional()
      .openapi({ description: 'Of the platform: it stands in for a function that the tenant does not have' }),
  })
  .openapi('Function');

const warnings = z.array(z.string()).openapi({ description: 'What will not work as it may be meant' });
const grants = z.array(z.string()).openapi({ description: 'What the manifest grants, in words' });

export const DeployedSchema = FunctionSchema.extend({
  created: z.boolean().openapi({ description: 'False when this content was deployed before' }),
  alias: AliasSchema.nullable().openapi({
    description: 'The alias that serves it now; null when the traffic was left alone',
  }),
  report: z.object({
    componentBytes: z.int(),
    moduleBytes: z.int().nullable(),
    cached: z.boolean().openapi({ description: 'The build was found, not made again' }),
    buildMs: z.number().nullable(),
    steps: z.array(z.object({ name: z.string(), ms: z.number() })),
    coldStartMs: z.number().nullable().openapi({ description: 'Launch with an empty pool, measured' }),
    warmStartMs: z
      .number()
      .nullable()
      .openapi({ description: 'Taking a ready instance from the pool, measured: its first call comes after it' }),
  }),
  grants,
  warnings,
}).openapi('Deployed');

export const DeployPlanSchema = z
  .object({
    version: z.string(),
    exists: z.boolean().openapi({ description: 'The version exists already' }),
    manifest: ManifestSchema,
    componentHash: z.string(),
    componentBytes: z.int(),
    alias: z.string().nullable().openapi({ description: 'The alias that the deploy would move; null for none' }),
    from: z.array(ShareSchema).openapi({ description: 'What that alias serves now' }),
    changes: z.array(DifferenceSchema),
    grants,
    warnings,
  })
  .openapi('DeployPlan', { description: 'What a deploy would do; nothing was stored.' });

export const UsageSchema = z
  .record(z.string(), z.unknown())
  .openapi('Usage', { description: 'What the invocation used; names carry their units.' });

export const InvocationSchema = z
  .object({
    id: z.string(),
    function: z.string(),
    version: z.string(),
    status: z.enum(['queued', 'running', 'succeeded', 'failed', 'cancelled']),
    parent: z.string().optional().openapi({ description: 'The invocation that launched it, when no client did' }),
    createdAt: timestamp,
    startedAt: timestamp.optional(),
    endedAt: timestamp.optional(),
    output: z.unknown().optional(),
    error: z.object({ code: z.string(), message: z.string() }).optional(),
    usage: UsageSchema.optional(),
    attempts: z.int().openapi({ description: 'Attempts begun; `usage` is the sum over them' }),
    lastEventId: z.string().openapi({
      description: 'Id of the last event so far, `<epoch>-<number>`; its number is 0 when there is none',
      example: '1763776000000-17',
    }),
    webhook: z
      .object({
        url: z.string(),
        status: z
          .enum(['waiting', 'pending', 'delivered', 'failed'])
          .openapi({ description: '`waiting` for the end, `pending` until an attempt succeeds' }),
        attempts: z.int(),
        lastStatus: z.int().nullable().openapi({ description: 'HTTP status of the last answer' }),
        lastError: z.string().nullable(),
        nextAt: timestamp.nullable().openapi({ description: 'When the next attempt is made' }),
      })
      .optional()
      .openapi({ description: 'How the notification of the end stands' }),
  })
  .openapi('Invocation');

export const FileSchema = z
  .object({
    name: z.string().openapi({ example: 'report.pdf' }),
    mediaType: z.string().openapi({ example: 'application/pdf' }),
    bytes: z.int(),
  })
  .openapi('File', { description: 'A file of an invocation, put there by its client or by the inferlet.' });

export const MessageSchema = z
  .union([z.object({ text: z.string() }), z.object({ base64: z.string() }), z.object({ file: FileSchema })])
  .openapi('Message', { description: 'What an inferlet sent: text, bytes in base64, or word of a file.' });

export const OutcomeSchema = z
  .object({
    id: z.string(),
    status: z.literal('succeeded'),
    output: z.unknown(),
    messages: z.array(MessageSchema),
    messagesTruncated: z
      .literal(true)
      .optional()
      .openapi({
        description: `Set when the messages passed ${DEFAULT_LIMITS.collectedBytes} bytes; the event stream has them all`,
      }),
    usage: UsageSchema.optional(),
  })
  .openapi('Outcome', { description: 'A waited-for invocation that succeeded.' });

export const LogEntrySchema = z
  .object({
    cursor: z.string(),
    function: z.string(),
    invocation: z.string(),
    time: timestamp,
    level: z.enum(['debug', 'info', 'warn', 'error']),
    message: z.string(),
  })
  .openapi('LogEntry');

export const ModelSchema = z
  .object({
    id: z.string(),
    object: z.literal('model'),
    created: z.int(),
    owned_by: z.string(),
    contextLength: z.int(),
    vocabularySize: z.int(),
    pageSize: z.int(),
    pageCount: z.int(),
    traits: z.array(z.string()),
    aliasOf: z.string().optional().openapi({ description: 'This is another name of that model' }),
  })
  .openapi('Model');

export const HealthSchema = z
  .object({
    ready: z.boolean(),
    checks: z.array(z.object({ name: z.string(), ok: z.boolean(), detail: z.string().optional() })),
  })
  .openapi('Health');

export const ProblemSchema = z
  .looseObject({
    type: z.string().openapi({ description: "Address of the code's documentation page" }),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    code: z.enum(Object.keys(CODES) as [string, ...string[]]),
    hint: z.string(),
    field: z.string().optional().openapi({ description: 'The offending field (JSON pointer) or parameter' }),
    requestId: z.string(),
    error: z.object({ message: z.string(), type: z.string(), code: z.string(), param: z.string().optional() }),
  })
  .openapi('Problem', { description: 'RFC 9457, with the `error` object that OpenAI-style clients read.' });
