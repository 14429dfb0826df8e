import { z } from '@hono/zod-openapi';
import { DEFAULT_LIMITS } from '../context.ts';
import { CODES } from '../errors/codes.ts';

/** What the API answers with. The types of `control.ts` are assignable to these; `routes.test.ts` holds real answers against them. */

const timestamp = z.string().openapi({ description: 'ISO 8601', example: '2026-11-20T05:12:00.000Z' });

export const ManifestSchema = z
  .looseObject({
    name: z.string(),
    description: z.string().optional(),
    input: z.unknown().optional().openapi({ description: 'JSON schema (2020-12) of the input' }),
  })
  .openapi('Manifest', { description: 'What pie.json says about the function.' });

export const FunctionSchema = z
  .object({
    name: z.string().openapi({ example: 'text-completion' }),
    version: z.string().openapi({ description: 'Content hash of manifest and component', example: '3f9ac41e07b2' }),
    manifest: ManifestSchema,
    componentHash: z.string().openapi({ description: 'sha256, hexadecimal' }),
    componentBytes: z.int(),
    createdAt: timestamp,
    platform: z
      .literal(true)
      .optional()
      .openapi({ description: 'Of the platform: it stands in for a function that the tenant does not have' }),
  })
  .openapi('Function');

export const DeployedSchema = FunctionSchema.extend({
  created: z.boolean().openapi({ description: 'False when this content was deployed before' }),
}).openapi('Deployed');

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
    lastEventId: z.int().openapi({ description: 'Sequence number of the last event so far; 0 when there is none' }),
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
