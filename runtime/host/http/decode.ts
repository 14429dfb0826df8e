import type { IncomingMessage } from 'node:http';
import { pipeline, Readable, type Transform } from 'node:stream';
import { constants, createGunzip, createInflate, createInflateRaw } from 'node:zlib';

/** Decoders that one body may need: each has a window of its own. */
const MAX_ENCODINGS = 2;
/** Bytes that wait behind a decoder. */
const READ_AHEAD_BYTES = 64 * 1024;

/** As browsers do: a stream that ends without its trailer gives what it has; one that was cut off fails where it was cut. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };

/** Not Brotli: its streams choose their window, so a few bytes of a stranger's would take 16 MiB here (RFC 7932, section 9.1). */
const DECODERS: Readonly<Record<string, (source: Readable) => Readable>> = {
  gzip: (source) => through(source, createGunzip(ZLIB)),
  'x-gzip': (source) => through(source, createGunzip(ZLIB)),
  deflate: (source) => Readable.from(inflate(source), { objectMode: false, highWaterMark: READ_AHEAD_BYTES }),
};

/**
 * The body of a response without its content encodings; the response itself when it has none, or one that is not known here. Errors come with
 * the next read; destroying either ends both.
 */
export function decoded(response: IncomingMessage): Readable {
  const names = (response.headers['content-encoding'] ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  const decoders = names.map((name) => DECODERS[name]).filter((decoder) => decoder !== undefined);
  if (decoders.length !== names.length || decoders.length > MAX_ENCODINGS) return response;
  return decoders.reduceRight<Readable>((source, decoder) => decoder(source), response);
}

const through = (source: Readable, decoder: Transform): Readable => pipeline(source, decoder, () => undefined);

/** `deflate` is zlib's format by the standard and bare deflate by many servers: the first byte tells. */
async function* inflate(source: Readable): AsyncGenerator<Buffer> {
  const pieces = source[Symbol.asyncIterator]() as AsyncIterableIterator<Buffer>;
  const first = await pieces.next();
  if (first.done) return;
  const method = (first.value[0] ?? 0) & 0x0f;
  async function* whole(): AsyncGenerator<Buffer> {
    yield first.value;
    yield* pieces;
  }
  yield* pipeline(whole, method === 8 ? createInflate(ZLIB) : createInflateRaw(ZLIB), () => undefined);
}
