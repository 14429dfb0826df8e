import { z } from 'zod';
import { INDEX_ERROR_CODES } from './errors.ts';
import { COMPARISONS, METRICS } from './types.ts';

/** Bounds of one call. The runtime checks them for guests; the index host checks them again. */
export const MAX_NAME = 128;
export const MAX_ID_BYTES = 512;
export const MAX_DIMENSIONS = 4096;
/** Largest value of a vector for metrics other than `cosine`: the graph has 16 bits for each. */
export const MAX_VALUE = 65_504;
export const MAX_ENTRIES_PER_CALL = 256;
/** Bytes of the vectors, texts and metadata of one call. */
export const MAX_CALL_BYTES = 4 * 2 ** 20;
/** Bytes of the matches of one query, encoded as JSON. */
export const MAX_MATCHES_BYTES = 4 * 2 ** 20;
export const MAX_TEXT_BYTES = 64 * 1024;
export const MAX_FIELDS = 32;
export const MAX_FIELD_NAME_BYTES = 64;
export const MAX_FIELD_TEXT_BYTES = 1024;
export const MAX_CONDITIONS = 16;
export const MAX_CONDITION_VALUES = 64;
export const MAX_MATCHES = 256;
export const MAX_QUERY_TEXT_BYTES = 8192;

export const INDEX_NAME = new RegExp(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,${MAX_NAME - 1}}$`);

// SQLite ends texts at U+0000, so no text may contain this character.
const boundedText = (maxBytes: number) =>
  z
    .string()
    .refine((text) => Buffer.byteLength(text) <= maxBytes, `more than ${maxBytes} bytes`)
    .refine((text) => !text.includes('\0'), 'contains the character U+0000');
const name = z.string().regex(INDEX_NAME);
const value = z.union([boundedText(MAX_FIELD_TEXT_BYTES), z.number(), z.boolean()]);
const fieldName = boundedText(MAX_FIELD_NAME_BYTES).min(1);
const id = boundedText(MAX_ID_BYTES).min(1);

const condition = z
  .strictObject({
    field: fieldName,
    comparison: z.enum(COMPARISONS),
    values: z.array(value).min(1).max(MAX_CONDITION_VALUES),
  })
  .refine(
    ({ comparison, values }) =>
      comparison === 'equal' ||
      comparison === 'not-equal' ||
      (values.length === 1 && values.every((one) => typeof one !== 'boolean')),
    'this comparison takes one text or number',
  );

const entry = z.strictObject({
  id,
  text: boundedText(MAX_TEXT_BYTES).nullable(),
  metadata: z
    .array(z.tuple([fieldName, value]))
    .max(MAX_FIELDS)
    .refine((fields) => new Set(fields.map(([field]) => field)).size === fields.length, 'a field occurs twice'),
});

/** A request without its vectors. The vectors of an `upsert`, or the vector of a `query`, follow as floats in the frame. */
export const requestSchema = z.discriminatedUnion('op', [
  z.strictObject({
    op: z.literal('create'),
    name,
    dimensions: z.int().min(1).max(MAX_DIMENSIONS),
    metric: z.enum(METRICS),
  }),
  z.strictObject({
    op: z.literal('upsert'),
    name,
    entries: z
      .array(entry)
      .max(MAX_ENTRIES_PER_CALL)
      .refine((entries) => new Set(entries.map((one) => one.id)).size === entries.length, 'an id occurs twice'),
    /** The tenant's own limit, if it has one. */
    maxBytes: z.number().min(0).optional(),
  }),
  z.strictObject({ op: z.literal('delete'), name, ids: z.array(id).max(MAX_ENTRIES_PER_CALL) }),
  z.strictObject({
    op: z.literal('query'),
    name,
    text: boundedText(MAX_QUERY_TEXT_BYTES).nullable(),
    filter: z.array(condition).max(MAX_CONDITIONS),
    limit: z.int().min(1).max(MAX_MATCHES),
  }),
  z.strictObject({ op: z.literal('stats'), name }),
  z.strictObject({ op: z.literal('list') }),
  z.strictObject({ op: z.literal('sum') }),
  z.strictObject({ op: z.literal('drop'), name }),
]);
export type IndexRequest = z.output<typeof requestSchema>;

/** First message of a connection: the tenant of all its requests. */
export const helloSchema = z.strictObject({ tenant: z.string().min(1).max(256) });

export const callSchema = z.strictObject({ deadlineMs: z.number().min(0), request: requestSchema });

export const answerSchema = z.discriminatedUnion('outcome', [
  z.strictObject({ outcome: z.literal('ok'), value: z.unknown() }),
  z.strictObject({ outcome: z.literal('error'), code: z.enum(INDEX_ERROR_CODES), message: z.string() }),
]);
