import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { decoded, EncodedTooLong } from './http-client.ts';

const TEXT = Buffer.from('the body of a response');
const MAX_ENCODED_BYTES = 2 ** 20;

describe('the body of a response', () => {
  let server: http.Server;
  let answer: { encoding: string; body: Buffer } = { encoding: '', body: TEXT };
  before(async () => {
    server = http.createServer((_, response) => {
      response.writeHead(200, { 'content-encoding': answer.encoding }).end(answer.body);
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
  });
  after(() => server.close());

  const read = async (encoding: string, body: Buffer): Promise<Buffer> => {
    answer = { encoding, body };
    const { port } = server.address() as AddressInfo;
    const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
      http.get({ host: '127.0.0.1', port, agent: false }, resolve).on('error', reject);
    });
    return buffer(decoded(response, MAX_ENCODED_BYTES));
  };

  it('is decoded with up to two encodings, the last one first', async () => {
    for (const [encoding, body] of [
      ['gzip', gzipSync(TEXT)],
      ['Identity, X-GZIP', gzipSync(TEXT)],
      ['deflate', deflateSync(TEXT)],
      ['deflate', deflateRawSync(TEXT)],
      ['deflate, gzip', gzipSync(deflateSync(TEXT))],
    ] as const)
      assert.deepEqual(await read(encoding, body), TEXT, encoding);
  });

  it('stays encoded when it has more than two encodings, or an unknown one', async () => {
    const thrice = gzipSync(gzipSync(gzipSync(TEXT)));
    assert.deepEqual(await read('gzip, gzip, gzip', thrice), thrice);
    assert.deepEqual(await read('br, gzip', gzipSync(TEXT)), gzipSync(TEXT));
    for (const name of ['__proto__', 'constructor']) assert.deepEqual(await read(name, TEXT), TEXT, name);
  });

  it('fails when a decoder takes too many bytes, also if they decode to nothing', async () => {
    const header = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
    // Stored blocks of deflate without data: 5 bytes each, which decode to nothing.
    const emptyBlocks = Buffer.alloc(MAX_ENCODED_BYTES, Buffer.from([0, 0, 0, 0xff, 0xff]));
    const endless = Buffer.concat([header, emptyBlocks]);
    assert.equal((await read('deflate', emptyBlocks)).length, 0, 'the bound itself is allowed');
    for (const [encoding, body] of [
      ['gzip', endless],
      ['gzip, gzip', gzipSync(endless)],
      ['gzip, deflate', deflateSync(endless)],
      ['deflate, gzip', gzipSync(Buffer.concat([emptyBlocks, emptyBlocks]))],
    ] as const)
      await assert.rejects(read(encoding, body), EncodedTooLong, encoding);
  });
});
