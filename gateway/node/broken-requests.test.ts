import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { TestPlatform } from '../testing/platform.ts';

describe('a broken HTTP request', () => {
  let platform: TestPlatform;
  before(async () => {
    platform = await TestPlatform.start();
    await platform.register({ name: 'echo' });
  });
  after(() => platform.stop());

  /** Writes bytes and reads the answer until the server closes. */
  function raw(bytes: string): Promise<string> {
    const { hostname, port } = new URL(platform.url);
    return new Promise((resolve, reject) => {
      const socket = connect({ host: hostname, port: Number(port) });
      let text = '';
      socket.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      socket.once('close', () => resolve(text));
      socket.once('error', reject);
      socket.write(bytes);
    });
  }

  function problemIn(answer: string): { code: string; status: number; hint: string; requestId: string } {
    assert.match(answer, /\r\ncontent-type: application\/problem\+json\r\n/);
    return JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4));
  }

  it('gets a problem as its answer and stores nothing', async () => {
    const key = `authorization: Bearer ${platform.apiKey}\r\nhost: x`;
    const large = await raw(
      `POST /v1/functions/echo/invocations HTTP/1.1\r\n${key}\r\nx-large: ${'a'.repeat(40_000)}\r\ncontent-length: 2\r\n\r\n{}`,
    );
    assert.match(large, /^HTTP\/1\.1 431 Request Header Fields Too Large\r\n/);
    const { code, status, hint, requestId } = problemIn(large);
    assert.deepEqual([code, status], ['headers-too-large', 431]);
    assert.ok(hint.includes('16 KiB') && /^req_/.test(requestId));
    const endless = await raw(`GET /healthz HTTP/1.1\r\nhost: x\r\nx-large: ${'a'.repeat(2_000_000)}`);
    assert.equal(problemIn(endless).code, 'headers-too-large', 'also while the client still sends');
    const many = Array.from({ length: 500 }, (_, i) => `x-${i}: ${'a'.repeat(60)}`).join('\r\n');
    assert.equal(problemIn(await raw(`GET /healthz HTTP/1.1\r\nhost: x\r\n${many}\r\n\r\n`)).code, 'headers-too-large');
    for (const bytes of [
      'nonsense\r\n\r\n',
      'GET / HTTP/9.9\r\n\r\n',
      'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n',
    ]) {
      const answer = await raw(bytes);
      assert.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/);
      assert.equal(problemIn(answer).code, 'malformed-request');
    }
    assert.deepEqual(await platform.scheduler.invocations.recent('default', 'echo'), []);
    const fits = await fetch(`${platform.url}/healthz`, { headers: { 'x-large': 'a'.repeat(15_000) } });
    assert.equal(fits.status, 200);
  });
});
