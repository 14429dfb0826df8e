import { z } from '@hono/zod-openapi';
import { INVOCATION_CURSOR, type InvocationStatus, STATUSES, WEBHOOK_STATUSES } from '#scheduler/invocations/types.ts';
import { COLLECTED_BYTES, LEVELS, MAX_LOG_LINES, MAX_PAGE } from '../bounds.ts';
import { CODES, type ErrorCode } from '../errors/codes.ts';
import { tenantName } from './tenants.ts';
import { timestamp } from './timestamp.ts';

const UsageSchema = z
  .record(z.string(), z.unknown())
  .openapi('Usage', { description: 'Usage of the invocation; names carry their units.' });

const WebhookDeliverySchema = z.object({
  url: z.string(),
  status: z
    .enum(WEBHOOK_STATUSES)
    .openapi({ description: '`waiting` for the end, `pending` until an attempt succeeds' }),
  attempts: z.int(),
  lastStatus: z.int().nullable().openapi({ description: 'HTTP status of the last answer' }),
  lastError: z.string().nullable(),
  nextAt: timestamp.nullable().openapi({ description: 'Time of the next attempt' }),
});

const QuestionSchema = z
  .object({
    number: z.int().openapi({ description: 'Number of its event; an answer may name it' }),
    text: z.string(),
    schema: z.record(z.string(), z.unknown()).openapi({ description: 'JSON Schema of the answer' }),
    until: timestamp.openapi({ description: 'Time at which the invocation continues without an answer' }),
  })
  .openapi('Question', { description: 'The question that an invocation with the status `waiting` asks a person' });

export const InvocationSchema = z
  .object({
    id: z.string(),
    function: z.string(),
    version: z.string(),
    status: z.enum(STATUSES),
    parent: z.string().optional().openapi({ description: 'The invocation that launched it, when no client did' }),
    schedule: z.string().optional().openapi({ description: 'The schedule that made it, when no client did' }),
    createdAt: timestamp,
    notBefore: timestamp
      .optional()
      .openapi({ description: 'End of the delay of its `Debounce-Key`, while the invocation waits for it' }),
    successor: z
      .string()
      .optional()
      .openapi({ description: 'The later invocation with the same `Debounce-Key` that replaced it (`superseded`)' }),
    question: QuestionSchema.optional(),
    startedAt: timestamp.optional(),
    endedAt: timestamp.optional(),
    output: z.unknown().optional(),
    error: z
      .object({ code: z.enum(Object.keys(CODES) as [ErrorCode, ...ErrorCode[]]), message: z.string() })
      .optional(),
    usage: UsageSchema.optional(),
    attempts: z.int().openapi({
      description:
        'Attempts begun since the last wait for a person, or in all without such a wait; `usage` is the sum over all attempts',
    }),
    lastEventId: z.string().openapi({
      description: 'Id of the last event so far, `<epoch>-<number>`; its number is 0 when there is none',
      example: '1763776000000-17',
    }),
    webhook: WebhookDeliverySchema.optional().openapi({ description: 'State of the notification of the end' }),
  })
  .openapi('Invocation');

/** Cursor of the list of invocations: the place at which the next page begins. */
export const invocationCursor = z.string().regex(INVOCATION_CURSOR, 'is not a cursor');

export const InvocationQuerySchema = z.object({
  function: z.string().min(1).max(64).optional().openapi({ description: 'Only this function' }),
  status: z
    .string()
    .max(80)
    .optional()
    .openapi({
      description: `Only these states, separated by commas: ${STATUSES.join(', ')}`,
      example: 'queued,running',
    }),
  tenant: tenantName.optional().openapi({ description: "Another tenant than the key's (operators only)" }),
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(50).openapi({ description: 'Most entries to return' }),
  cursor: invocationCursor.optional().openapi({ description: '`cursor` of the previous page' }),
});

export const FileSchema = z
  .object({
    name: z.string().openapi({ example: 'report.pdf' }),
    mediaType: z.string().openapi({ example: 'application/pdf' }),
    bytes: z.int(),
  })
  .openapi('File', { description: 'A file of an invocation, put there by its client or by the inferlet.' });

const MessageSchema = z
  .union([z.object({ text: z.string() }), z.object({ base64: z.string() }), z.object({ file: FileSchema })])
  .openapi('Message', { description: 'A message of an inferlet: text, bytes in base64, or the notice of a file.' });

export const OutcomeSchema = z
  .object({
    id: z.string(),
    status: z.literal('succeeded'),
    output: z.unknown(),
    messages: z.array(MessageSchema).readonly(),
    messagesTruncated: z
      .literal(true)
      .optional()
      .openapi({
        description: `Set when messages were left out, because all messages have more than ${COLLECTED_BYTES} characters, or because the gateway lacked memory; the event stream has them all`,
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
    level: z.enum(LEVELS),
    message: z.string(),
  })
  .openapi('LogEntry');

/**
 * A cursor: the id of a Redis stream entry (time and sequence), then the function of the stream. The digits are limited, since Redis refuses numbers
 * above 64 bits.
 */
export const logCursor = z.string().regex(/^\d{1,15}-\d{1,19}(@[a-z][a-z0-9-]{0,62})?$/, 'is not a cursor');

export const LogQuerySchema = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(0)
    .max(MAX_LOG_LINES)
    .default(200)
    .openapi({ description: 'Past lines at most; has no effect on a stream that `Last-Event-ID` resumes' }),
  level: z.enum(LEVELS).default('debug').openapi({ description: 'Only lines of this level or a worse one' }),
  invocation: z.string().max(128).optional().openapi({ description: 'Only lines of this invocation' }),
  status: z.enum(STATUSES).optional().openapi({ description: 'Only lines of invocations that are in this state now' }),
  search: z.string().min(1).max(256).optional().openapi({ description: 'Only lines with this text, in any case' }),
  since: z.string().max(64).optional().openapi({
    description: 'Only lines from this time on: ISO 8601, or a time before now such as `10m`',
    example: '10m',
  }),
  until: z.string().max(64).optional().openapi({ description: 'Only lines before this time; not for streams' }),
  after: logCursor.optional().openapi({ description: 'Cursor: only later lines' }),
});

const ListedInvocationSchema = InvocationSchema.extend({
  tenant: z.string(),
  gpuHost: z
    .string()
    .optional()
    .openapi({ description: 'GPU host that serves it while it runs; only operators see it' }),
}).openapi('ListedInvocation');

export const InvocationPageSchema = z.object({
  invocations: z.array(ListedInvocationSchema),
  cursor: z.string().nullable(),
});

/** State of a webhook's delivery; see `WebhookState` of the scheduler. `url` omits the query string. */
export type WebhookDelivery = z.infer<typeof WebhookDeliverySchema>;
/** An invocation inside a gateway: its output may be a `JsonText`. `usage` sums over all attempts. */
export type HeldInvocation = z.infer<typeof InvocationSchema>;
/** The question to a person that an invocation waits for. */
export type Question = z.infer<typeof QuestionSchema>;
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
/** An invocation as clients see it. */
export type InvocationState = HeldInvocation & { readonly output?: Json | undefined };
export type InvocationQuery = Omit<z.infer<typeof InvocationQuerySchema>, 'status'> & {
  /** One state or several; all states when absent or empty. */
  readonly status?: InvocationStatus | readonly InvocationStatus[] | undefined;
};
export type ListedInvocation = z.infer<typeof ListedInvocationSchema> & InvocationState;
/** Newest first, without outputs. A page may be shorter than asked for even though `cursor` says that more follow. */
export type InvocationPage = Readonly<Omit<z.infer<typeof InvocationPageSchema>, 'invocations'>> & {
  readonly invocations: readonly ListedInvocation[];
};
export type Usage = z.infer<typeof UsageSchema>;
/** An inferlet's message: text, bytes in base64, or notice of a file for the client. */
export type MessageData = z.infer<typeof MessageSchema>;
/** The answer to a waiting client whose invocation succeeded. */
export type Outcome = z.infer<typeof OutcomeSchema>;
export type InvocationFile = z.infer<typeof FileSchema>;
export type LogEntry = z.infer<typeof LogEntrySchema>;
export type LogQuery = z.infer<typeof LogQuerySchema>;
