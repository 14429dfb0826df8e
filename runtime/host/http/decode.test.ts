import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { decoded } from './decode.ts';

const TEXT = Buffer.from('the body of a response');

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
    return buffer(decoded(response));
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

  it('stays as it is with more encodings, or an unknown one', async () => {
    const thrice = gzipSync(gzipSync(gzipSync(TEXT)));
    assert.deepEqual(await read('gzip, gzip, gzip', thrice), thrice);
    assert.deepEqual(await read('br, gzip', gzipSync(TEXT)), gzipSync(TEXT));
    for (const name of ['__proto__', 'constructor']) assert.deepEqual(await read(name, TEXT), TEXT, name);
  });
});
