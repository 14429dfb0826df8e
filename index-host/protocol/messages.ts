import { z } from 'zod';
import { FrameCutter, FrameFault, frameFor, LENGTH_BYTES } from '#scheduler/links/frames.ts';
import { COMPARISONS, INDEX_ERROR_CODES, METRICS } from './types.ts';

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

/** Kinds of frames: the first of a connection, a request, the withdrawal of a request, and an answer. */
export const FRAME = { hello: 1, request: 2, cancel: 3, answer: 4 } as const;

export interface Frame {
  readonly kind: number;
  /** Number of the request. */
  readonly id: number;
  readonly json: unknown;
  readonly floats: Float32Array;
}

/** Maximum bytes of a frame. JSON escapes texts, so a call within the bounds of `messages.ts` can be longer; the client refuses such a call. */
export const MAX_FRAME_BYTES = 16 * 2 ** 20;
// Offsets of the fields in the content of a frame.
const KIND_AT = 0;
const ID_AT = 1;
const JSON_LENGTH_AT = 5;
const HEADER_BYTES = 9;
const FLOAT_BYTES = 4;
const NO_FLOATS = new Float32Array(0);

/** Encodes a frame. Its content: kind (`u8`), id (`u32`), number of bytes of the JSON (`u32`), JSON, floats; little-endian. */
export function encodeFrame(kind: number, id: number, json: unknown, floats: Float32Array = NO_FLOATS): Buffer {
  const text = Buffer.from(JSON.stringify(json));
  const frame = frameFor(HEADER_BYTES + text.length + floats.byteLength);
  const content = frame.subarray(LENGTH_BYTES);
  content.writeUInt8(kind, KIND_AT);
  content.writeUInt32LE(id, ID_AT);
  content.writeUInt32LE(text.length, JSON_LENGTH_AT);
  text.copy(content, HEADER_BYTES);
  Buffer.from(floats.buffer, floats.byteOffset, floats.byteLength).copy(content, HEADER_BYTES + text.length);
  return frame;
}

/** Takes frames out of the bytes of a socket. */
export class FrameReader {
  readonly #cutter = new FrameCutter({ min: HEADER_BYTES, max: MAX_FRAME_BYTES });

  /** The frames that are complete with this chunk. @throws FrameFault */
  take(chunk: Buffer): Frame[] {
    const frames: Frame[] = [];
    this.#cutter.push(chunk, (content) => frames.push(decode(content)));
    return frames;
  }
}

function decode(content: Buffer): Frame {
  const jsonBytes = content.readUInt32LE(JSON_LENGTH_AT);
  const end = HEADER_BYTES + jsonBytes;
  const floatBytes = content.length - end;
  if (floatBytes < 0 || floatBytes % FLOAT_BYTES !== 0)
    throw new FrameFault('the lengths in the header of a frame do not fit its size');
  let json: unknown;
  try {
    json = JSON.parse(content.toString('utf8', HEADER_BYTES, end));
  } catch (cause) {
    throw new FrameFault('the JSON part of a frame cannot be parsed', { cause });
  }
  // A copy, since a view of floats needs an address that is a multiple of four.
  const floats = new Float32Array(floatBytes / FLOAT_BYTES);
  content.copy(new Uint8Array(floats.buffer), 0, end);
  return { kind: content.readUInt8(KIND_AT), id: content.readUInt32LE(ID_AT), json, floats };
}
