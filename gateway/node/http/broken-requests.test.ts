import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { silentLog } from '#scheduler/testing/log.ts';
import type { Problem } from '../../app/schemas/platform.ts';
import { GatewayPlatform } from '../../testing/platform.ts';
import { serve } from './server.ts';

describe('a broken HTTP request', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start({ serve: { headMs: 100 } });
    await platform.register({ name: 'echo' });
  });
  after(() => platform.stop());

  /** Writes bytes and reads the answer until the server closes. */
  function raw(bytes: string, url = platform.url): Promise<string> {
    const { hostname, port } = new URL(url);
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

  function problemIn(
    answer: string,
  ): Pick<Problem, 'type' | 'code' | 'status' | 'detail' | 'hint' | 'field' | 'requestId'> {
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
    for (const target of [`/${'a'.repeat(20_000)}`, `/v1/functions?q=${'a'.repeat(2_000_000)}`]) {
      const long = await raw(`GET ${target} HTTP/1.1\r\nhost: x\r\n\r\n`);
      assert.match(long, /^HTTP\/1\.1 414 URI Too Long\r\n/);
      assert.equal(problemIn(long).code, 'address-too-long');
    }
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

  it('gets a problem when it names no host, several, or none that can be one', async () => {
    const key = `authorization: Bearer ${platform.apiKey}`;
    for (const [host, field] of [
      ['', 'host'],
      ['host:\r\n', 'host'],
      ['host: x\r\nHost: x\r\n', 'host'],
      ['host: x\r\nhost: y\r\n', 'host'],
      ['host: a b\r\n', undefined],
      ['host: x/y\r\n', undefined],
      ['host: user@x\r\n', undefined],
      ['host: [::1\r\n', undefined],
      ['host: x:99999\r\n', undefined],
      ['host: ünicode/\r\n', undefined],
    ] as const) {
      const answer = await raw(`GET /v1/functions HTTP/1.1\r\n${host}${key}\r\nconnection: close\r\n\r\n`);
      assert.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/, host);
      const problem = problemIn(answer);
      assert.deepEqual([problem.code, problem.field], ['malformed-request', field], host);
      assert.match(problem.detail, /`Host`/);
    }
    const body = await raw(`POST /healthz HTTP/1.1\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}`);
    assert.equal(problemIn(body).code, 'malformed-request');
    for (const good of ['host: x', 'host: [::1]:80', 'host: 127.0.0.1', 'HOST: X.example:8080']) {
      const answer = await raw(`GET /healthz HTTP/1.1\r\n${good}\r\nconnection: close\r\n\r\n`);
      assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/, good);
    }
  });

  it('may lack a host in HTTP/1.0', async () => {
    assert.match(await raw('GET /healthz HTTP/1.0\r\n\r\n'), /^HTTP\/1\.1 200 OK\r\n/);
    const missing = problemIn(await raw('GET /nothing HTTP/1.0\r\n\r\n'));
    assert.equal(missing.type, `${platform.url}/docs/errors/not-found`);
  });

  it('gets a problem for a target, method or expectation that the gateway does not take', async () => {
    for (const [line, status, code] of [
      ['GET nothing HTTP/1.1', 400, 'malformed-request'],
      ['GET /a\\b HTTP/1.1', 400, 'malformed-request'],
      ['GET http://[/ HTTP/1.1', 400, 'malformed-request'],
      ['CONNECT x:443 HTTP/1.1', 405, 'method-not-allowed'],
      ['SPEAK / HTTP/1.1', 400, 'malformed-request'],
      ['GET /healthz HTTP/1.1\r\nexpect: tea', 400, 'malformed-request'],
      ['TRACE /healthz HTTP/1.1', 405, 'method-not-allowed'],
    ] as const) {
      const answer = await raw(`${line}\r\nhost: x\r\nconnection: close\r\n\r\n`);
      const problem = problemIn(answer);
      assert.deepEqual([problem.status, problem.code], [status, code], line);
      assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `), line);
    }
  });

  it('by a page of a listed origin gets an answer that the page may read', async () => {
    const page = 'https://app.example.com';
    const large = `x-large: ${'a'.repeat(40_000)}\r\n`;
    const host = 'host: x\r\n';
    const key = `authorization: Bearer ${platform.apiKey}\r\n`;
    const chunked = `${key}content-type: application/json\r\ntransfer-encoding: chunked\r\n`;
    const broken = (origin: string): [status: number, bytes: string][] => [
      [431, `GET /healthz HTTP/1.1\r\n${host}${origin}${large}\r\n`],
      [400, `GET /healthz HTTP/1.1\r\n${origin}\r\n`],
      [400, `GET nothing HTTP/1.1\r\n${host}${origin}connection: close\r\n\r\n`],
      [400, `GET /healthz HTTP/1.1\r\n${host}${origin}expect: tea\r\n\r\n`],
      [400, `POST /v1/functions/echo/invocations HTTP/1.1\r\n${host}${origin}${chunked}\r\nzz\r\n`],
    ];
    const headerIn = (answer: string, name: string) => new RegExp(`\r\n${name}: ([^\r]*)\r\n`, 'i').exec(answer)?.[1];
    for (const [corsOrigins, allowed] of [
      [[page], page],
      [['https://other.example', page], page],
      [['*'], '*'],
      [['https://other.example', 'https://more.example'], undefined],
      [[], undefined],
    ] as const) {
      const server = await serve(platform.control, {
        host: '127.0.0.1',
        port: 0,
        log: silentLog,
        corsOrigins,
        headMs: 100,
      });
      try {
        for (const [status, bytes] of broken(`origin: ${page}\r\n`)) {
          const answer = await raw(bytes, server.url);
          assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `));
          const [first] = bytes.split('\r\n');
          assert.equal(headerIn(answer, 'access-control-allow-origin'), allowed, `${first} with ${corsOrigins}`);
          assert.equal(headerIn(answer, 'access-control-expose-headers')?.includes('x-request-id'), allowed && true);
        }
        // The only origin may read an answer to a request of which the gateway has not the origin.
        const late = await raw('GET /healthz HTTP/1.1\r\nhost: x\r\nx: ', server.url);
        assert.match(late, /^HTTP\/1\.1 408 /);
        const only = corsOrigins.length === 1 ? allowed : undefined;
        assert.equal(headerIn(late, 'access-control-allow-origin'), only);
      } finally {
        await server.close(0);
      }
    }
  });

  it('by a page of another origin gets no leave without the setting', async () => {
    const headers = { origin: 'https://app.example.com', 'access-control-request-method': 'POST' };
    const answer = await fetch(`${platform.url}/v1/functions`, { method: 'OPTIONS', headers });
    assert.deepEqual([answer.status, answer.headers.get('access-control-allow-origin')], [401, null]);
  });

  it('may end with a reset by its client, after any of its bytes', async () => {
    const { hostname, port } = new URL(platform.url);
    const heads = [
      'CONNECT x:443 HTTP/1.1',
      'GET /healthz HTTP/1.1',
      'GET nothing HTTP/1.1',
      'GET /healthz HTTP/1.1\r\nexpect: tea',
    ];
    for (const head of heads) {
      for (const waitsForAnswer of [false, true]) {
        const socket = connect({ host: hostname, port: Number(port) }).on('error', () => undefined);
        await new Promise<void>((sent) => socket.write(`${head}\r\nhost: x\r\n\r\n`, () => sent()));
        if (waitsForAnswer) await new Promise((answered) => socket.once('data', answered));
        socket.resetAndDestroy();
        // An error without a listener ends the process of the gateway, here that of this test.
        assert.equal((await fetch(`${platform.url}/healthz`)).status, 200);
      }
    }
  });

  it('gets a problem when its head comes too slowly; a connection without a byte is closed in silence', async () => {
    const late = await raw('GET /healthz HTTP/1.1\r\nhost: x\r\nx: ');
    assert.match(late, /^HTTP\/1\.1 408 Request Timeout\r\n/);
    assert.equal(problemIn(late).code, 'head-timeout');
    assert.equal(await raw(''), '');
  });

  it('gets a problem when its body breaks before the answer', async () => {
    const head = `POST /v1/functions/echo/invocations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${platform.apiKey}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`;
    for (const chunk of ['zz\r\n{}\r\n', '2\r\n{}xx', '-1\r\n']) {
      const answer = await raw(head + chunk);
      assert.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/, chunk);
      const problem = problemIn(answer);
      assert.equal(problem.code, 'malformed-request');
      assert.match(problem.detail, /body/);
    }
    assert.deepEqual(await platform.scheduler.invocations.recent('default', 'echo'), []);
  });
});
