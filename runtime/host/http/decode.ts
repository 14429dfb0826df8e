import type { IncomingMessage } from 'node:http';
import { pipeline, Readable, Transform } from 'node:stream';
import { constants, createGunzip, createInflate, createInflateRaw } from 'node:zlib';

/** Maximum decoders for one body: each needs memory for a window. */
const MAX_ENCODINGS = 2;
/** Maximum decoded bytes that are read ahead. */
const READ_AHEAD_BYTES = 64 * 1024;

/** Like browsers, accept a stream that ends without its trailer; a connection that breaks still fails the read. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };

/**
 * A map and not an object, since servers choose the names: `__proto__` must be as unknown as any other name. Brotli is left out: its streams
 * choose their window, so a few bytes from a server could take 16 MiB here (RFC 7932, section 9.1).
 */
const DECODERS = new Map<string, (source: Readable) => Readable>([
  ['gzip', (source) => through(source, createGunzip(ZLIB))],
  ['x-gzip', (source) => through(source, createGunzip(ZLIB))],
  ['deflate', (source) => Readable.from(inflate(source), { objectMode: false, highWaterMark: READ_AHEAD_BYTES })],
]);

/** The error when a body has more encoded bytes than a decoder may take. */
export class EncodedTooLong extends Error {}

/**
 * The decoded body of a response; the response itself when it has no encoding or an unknown one. Errors surface at the next read.
 * Destroying the response or the decoded body ends both.
 *
 * @param maxEncodedBytes bound on the bytes that each decoder takes; without it, a body whose bytes decode to nothing could go on forever
 */
export function decoded(response: IncomingMessage, maxEncodedBytes: number): Readable {
  const names = (response.headers['content-encoding'] ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  const decoders = names.map((name) => DECODERS.get(name)).filter((decoder) => decoder !== undefined);
  if (decoders.length !== names.length || decoders.length > MAX_ENCODINGS) return response;
  return decoders.reduceRight<Readable>((source, decoder) => decoder(through(source, upTo(maxEncodedBytes))), response);
}

/** Passes bytes on, one piece at a time, and fails past the bound. */
function upTo(maxBytes: number): Transform {
  let bytes = 0;
  return new Transform({
    highWaterMark: 1,
    transform(piece: Buffer, _encoding, done) {
      bytes += piece.length;
      if (bytes > maxBytes) done(new EncodedTooLong());
      else done(null, piece);
    },
  });
}

const through = (source: Readable, decoder: Transform): Readable => pipeline(source, decoder, () => undefined);

/** Method of the zlib format, in the low bits of its first byte (RFC 1950). */
const ZLIB_DEFLATE = 8;

/** Decodes `deflate`. The standard means the zlib format, but many servers send bare deflate; the first byte tells them apart. */
async function* inflate(source: Readable): AsyncGenerator<Buffer> {
  const pieces = source[Symbol.asyncIterator]() as AsyncIterableIterator<Buffer>;
  const first = await pieces.next();
  if (first.done) return;
  const method = (first.value[0] ?? 0) & 0x0f;
  async function* whole(): AsyncGenerator<Buffer> {
    yield first.value;
    yield* pieces;
  }
  yield* pipeline(whole, method === ZLIB_DEFLATE ? createInflate(ZLIB) : createInflateRaw(ZLIB), () => undefined);
}
