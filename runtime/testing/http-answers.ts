import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';

const MIB = 2 ** 20;
/** The decoded text of every encoded answer. */
export const TEXT = 'All work and no play makes Jack a dull boy. '.repeat(5000);

/** The parts of a request that `/echo` returns. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Finite answers of a test's server, by path: plain, echoed, and in every encoding, valid and broken. */
export const answers: Readonly<Record<string, RequestListener>> = {
  '/text': (_request, response) => response.setHeader('x-two', ['a', 'b']).end('hello'),
  '/echo': async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const { method = '', url = '', headers } = request;
    response.end(JSON.stringify({ method, url, headers, body: Buffer.concat(pieces).toString() } satisfies Seen));
  },
  '/gzip': (_request, response) => response.setHeader('content-encoding', 'gzip').end(gzipSync(TEXT)),
  '/br': (_request, response) => response.setHeader('content-encoding', 'br').end(brotliCompressSync(TEXT)),
  '/deflate': (_request, response) => response.setHeader('content-encoding', 'deflate').end(deflateSync(TEXT)),
  '/raw': (_request, response) => response.setHeader('content-encoding', 'deflate').end(deflateRawSync(TEXT)),
  '/twice': (_request, response) =>
    response.setHeader('content-encoding', 'deflate, gzip').end(gzipSync(deflateSync(TEXT))),
  '/strange': (_request, response) => response.setHeader('content-encoding', 'rot13').end('uryyb'),
  '/broken': (_request, response) => response.setHeader('content-encoding', 'gzip').end('this is not gzip'),
  '/bomb': (_request, response) =>
    response.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(64 * MIB), { level: 9 })),
  // The outer gzip holds a gzip header whose file name does not end, so the inner gzip decodes nothing.
  '/nothing': (_request, response) => {
    const [header, name] = [Buffer.from([0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3]), gzipSync(Buffer.alloc(MIB, 'a'))];
    const body = Buffer.concat([gzipSync(header), ...Array.from({ length: 64 }, () => name)]);
    response.setHeader('content-encoding', 'gzip, gzip').end(body);
  },
};
