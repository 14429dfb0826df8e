import { GatewayError } from '../errors/gateway-error.ts';
import type { NextPiece } from './bodies.ts';

/** Decoders of compressed bodies, by the content coding (RFC 9110, section 8.4.1). Each decoder bounds what it produces ahead of its reader. */
export type Decoders = ReadonlyMap<string, () => ReadableWritablePair<Uint8Array, Uint8Array>>;

/** The decoded pieces of a body, as the caller asks for them. */
export interface Decoding {
  /** @throws GatewayError `malformed-request` when the compressed data is damaged or incomplete, and the errors of the body's own pieces */
  readonly next: NextPiece;
  /** Ends the decoding and frees its memory. */
  cancel(): Promise<void>;
}

type Format = ConstructorParameters<typeof DecompressionStream>[0];

/** Content codings and their names for `DecompressionStream`. */
const FORMATS: Readonly<Record<string, Format>> = { gzip: 'gzip', deflate: 'deflate', br: 'brotli' };
/**
 * Compressed bytes that a decoder gets at once. A decoder of workerd decodes all of them before its reader takes anything, and deflate makes at most
 * 1,032 bytes of one.
 */
const SLICE_BYTES = 4096;
/**
 * Bytes that a decoder may take, whatever the body: the largest window of its coding (RFC 7932, section 9.1; RFC 9659), or somewhat more than what
 * zlib takes.
 */
const DECODER_BYTES: Readonly<Record<string, number>> = { br: 17 * 2 ** 20, zstd: 9 * 2 ** 20 };
const ZLIB_BYTES = 2 ** 18;
/** Maximum characters of a header that an error quotes. */
const MAX_QUOTED = 40;

/** The decoders that this process has as `DecompressionStream`: Node also decodes brotli, workerd does not. */
export function webDecoders(): Decoders {
  const decoders = new Map<string, () => ReadableWritablePair<Uint8Array, Uint8Array>>();
  for (const [coding, format] of Object.entries(FORMATS)) {
    const make = () => new DecompressionStream(format) as ReadableWritablePair<Uint8Array, Uint8Array>;
    try {
      make();
    } catch {
      // This process does not know the format.
      continue;
    }
    decoders.set(coding, make);
  }
  return decoders;
}

/**
 * The content coding of a body; null for none.
 *
 * @throws GatewayError `unsupported-media-type` for a coding without a decoder, and for several codings
 */
export function codingOf(headers: Headers, decoders: Decoders): string | null {
  const header = headers.get('content-encoding') ?? '';
  const codings = header
    .toLowerCase()
    .split(',')
    .map((coding) => coding.trim())
    .filter((coding) => coding !== '' && coding !== 'identity')
    .map((coding) => (coding === 'x-gzip' ? 'gzip' : coding));
  const [coding] = codings;
  if (coding === undefined) return null;
  if (codings.length === 1 && decoders.has(coding)) return coding;
  const known = [...decoders.keys()].join(', ');
  throw new GatewayError(
    'unsupported-media-type',
    `The gateway does not decode a body with \`Content-Encoding: ${header.slice(0, MAX_QUOTED)}\`.`,
    {
      field: 'content-encoding',
      hint: `Send the body as it is, without \`Content-Encoding\`, or in one of these codings: ${known}.`,
      headers: { 'accept-encoding': known },
    },
  );
}

/** Bytes of memory that the decoder of a coding may take. */
export const decoderBytes = (coding: string): number => DECODER_BYTES[coding] ?? ZLIB_BYTES;

/** Decodes a body. @param next the compressed pieces */
export function decode(next: NextPiece, coding: string, decoders: Decoders): Decoding {
  const decoder = decoders.get(coding);
  if (decoder === undefined) throw new TypeError(`no decoder for ${coding}`);
  let fault: { readonly error: unknown } | undefined;
  let waiting: Uint8Array = new Uint8Array(0);
  const compressed = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          if (waiting.byteLength === 0) {
            const piece = await next();
            if (piece === undefined) {
              controller.close();
              return;
            }
            waiting = piece;
          }
          controller.enqueue(waiting.subarray(0, SLICE_BYTES));
          waiting = waiting.subarray(SLICE_BYTES);
        } catch (error) {
          fault = { error };
          throw error;
        }
      },
    },
    { highWaterMark: 0 },
  );
  const reader = compressed.pipeThrough(decoder()).getReader();
  return {
    async next() {
      try {
        const { done, value } = await reader.read();
        return done ? undefined : value;
      } catch (cause) {
        throw fault === undefined ? damaged(coding, cause) : fault.error;
      }
    },
    cancel: () => reader.cancel().catch(() => undefined),
  };
}

function damaged(coding: string, cause: unknown): GatewayError {
  return new GatewayError('malformed-request', `The body is not valid ${coding} data, or its end is missing.`, {
    field: 'content-encoding',
    hint: `Compress the body with ${coding}, or send it without \`Content-Encoding\`.`,
    cause,
  });
}
