import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import type { Request, ResponseHead } from '#wit/generated/host.ts';
import { answers, type Seen, TEXT } from '../../testing/http-answers.ts';
import { TestInferlet, type TestInferletOptions } from '../../testing/inferlet.ts';
import { failureOf, value } from '../../testing/outcome.ts';
import type { Exchange } from './http-calls.ts';
import { HttpClient, type HttpClientOptions } from './http-client.ts';

const MIB = 2 ** 20;

describe('http', () => {
  let server: Server;
  let other: Server;
  let host: string;
  let otherHost: string;
  const opened: TestInferlet[] = [];
  /** Sockets that the server has open. */
  let sockets = 0;
  let endlessBytes = 0;
  /** Breaks off the last pending answer. */
  let breakOff = () => undefined as unknown;

  const routes: Readonly<Record<string, RequestListener>> = {
    ...answers,
    '/never': () => undefined,
    '/unread': (request) => void request.pause(),
    '/slow': (_request, response) => void response.write('first '),
    '/endless': (_request, response) => {
      endlessBytes = 0;
      const piece = Buffer.alloc(MIB);
      const write = () => {
        while (!response.destroyed) {
          endlessBytes += piece.length;
          if (!response.write(piece)) break;
        }
      };
      response.on('drain', write);
      write();
    },
    '/cut': (_request, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('only this');
      breakOff = () => response.destroy();
    },
    '/rude': (request) => request.socket.destroy(),
    '/loop': (_request, response) => response.writeHead(302, { location: '/loop' }).end(),
    '/upgrade': (_request, response) => response.writeHead(101, { upgrade: 'x', connection: 'upgrade' }).end(),
  };
  const listener: RequestListener = (request, response) => {
    const url = new URL(request.url ?? '', 'http://x');
    const [, status] = /^\/redirect\/(\d+)$/.exec(url.pathname) ?? [];
    if (status) response.writeHead(Number(status), { location: url.searchParams.get('to') ?? '' }).end('elsewhere');
    else (routes[url.pathname] ?? ((_request, answer) => answer.writeHead(404).end()))(request, response);
  };

  before(async () => {
    [server, other] = [createServer(listener), createServer(listener)];
    server.on('connection', (socket) => {
      sockets++;
      socket.once('close', () => sockets--);
    });
    for (const each of [server, other]) await once(each.listen(0, '127.0.0.1'), 'listening');
    host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    otherHost = `127.0.0.1:${(other.address() as AddressInfo).port}`;
  });
  after(async () => {
    await Promise.all(opened.map((each) => each.end()));
    for (const each of [server, other]) {
      each.closeAllConnections();
      each.close();
    }
  });

  const client = (options: Partial<HttpClientOptions> = {}) =>
    new HttpClient({ version: '1.2.3', privateHosts: [{ host: '127.0.0.1' }], ...options });
  function inferlet(options: TestInferletOptions & { http?: HttpClient } = {}) {
    const { http = client(), ...rest } = options;
    const made = new TestInferlet(null, { grants: { hosts: [host, otherHost] }, services: { http }, ...rest });
    opened.push(made);
    return made;
  }
  const begin = (guest: TestInferlet, path: string, request: Partial<Request> = {}): Exchange =>
    guest.call<Exchange>('http', '[constructor]exchange', {
      method: 'GET',
      url: path.includes('://') ? path : `http://${host}${path}`,
      headers: [],
      body: undefined,
      timeoutMs: undefined,
      redirects: 0,
      ...request,
    });
  const head = (guest: TestInferlet, exchange: Exchange) =>
    guest.call<Promise<Outcome<ResponseHead>>>('http', '[method]exchange.head', exchange);
  const read = (guest: TestInferlet, exchange: Exchange) =>
    guest.call<Promise<Outcome<Uint8Array | undefined>>>('http', '[method]exchange.read', exchange);
  async function readAll(guest: TestInferlet, exchange: Exchange): Promise<string> {
    const pieces: Uint8Array[] = [];
    for (;;) {
      const piece = value(await read(guest, exchange));
      if (!piece) return Buffer.concat(pieces).toString();
      assert.ok(piece.length >= 1 && piece.length <= 65_536);
      pieces.push(piece);
    }
  }
  /** The tag and the text of the error in the head or body of a response; `none` without an error. */
  async function failure(guest: TestInferlet, path: string, request: Partial<Request> = {}): Promise<string> {
    const exchange = begin(guest, path, request);
    const first = await head(guest, exchange);
    if (first.tag === 'err') {
      assert.deepEqual(await read(guest, exchange), first);
      return `${first.val.tag}: ${first.val.val}`;
    }
    for (;;) {
      const piece = await read(guest, exchange);
      if (piece.tag === 'err') return `${piece.val.tag}: ${piece.val.val}`;
      if (!piece.val) return 'none';
    }
  }
  const echo = async (guest: TestInferlet, request: Partial<Request> = {}, path = '/echo'): Promise<Seen> =>
    JSON.parse(await readAll(guest, begin(guest, path, request))) as Seen;
  const untilConnections = (count: number) =>
    eventually(() => sockets === count, `the server has ${count} connections`);

  it('returns the head, then the body to its end', async () => {
    const guest = inferlet();
    const exchange = begin(guest, '/text');
    const { status, headers, url } = value(await head(guest, exchange));
    assert.deepEqual([status, url], [200, `http://${host}/text`]);
    assert.deepEqual(
      headers.filter(({ name }) => name === 'x-two').map((header) => header.value),
      ['a', 'b'],
    );
    assert.ok(headers.every(({ name }) => name === name.toLowerCase() && name !== 'connection'));
    assert.equal(await readAll(guest, exchange), 'hello');
    assert.equal(value(await read(guest, exchange)), undefined);
    assert.equal(value(await head(guest, begin(guest, '/missing'))).status, 404);
  });

  it('sends the given method, headers and body, and identifies its client', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const guest = inferlet({ traceparent });
    const memory = new Uint8Array(Buffer.from('{"a": "ä"}'));
    const headers = [{ name: 'X-Mine', value: 'yes' }];
    const sending = echo(guest, { method: 'post', body: memory, headers });
    memory.fill(0);
    const seen = await sending;
    assert.deepEqual([seen.method, seen.body, seen.headers['x-mine']], ['POST', '{"a": "ä"}', 'yes']);
    assert.equal(seen.headers['user-agent'], 'pie/1.2.3');
    assert.equal(seen.headers.traceparent, traceparent);
    assert.equal(seen.headers.host, host);
    const own = await echo(guest, { headers: [{ name: 'User-Agent', value: 'mine' }] });
    assert.equal(own.headers['user-agent'], 'mine');
  });

  it('refuses malformed requests and headers of the connection', async () => {
    const guest = inferlet();
    const header = (name: string, text: string) => failure(guest, '/text', { headers: [{ name, value: text }] });
    for (const [error, expected] of [
      [await failure(guest, '/text', { method: 'G E T' }), /token/],
      [await failure(guest, '/text', { method: '' }), /token/],
      [await failure(guest, '/text', { method: 'connect' }), /CONNECT/],
      [await failure(guest, 'ftp://127.0.0.1/x'), /ftp: is not supported/],
      [await failure(guest, '://'), /URL/],
      [await failure(guest, `http://me:pass@${host}/`), /user/],
      [await failure(guest, '/text', { redirects: 11 }), /redirects/],
      [await header('Host', 'elsewhere'), /host/],
      [await header('transfer-encoding', 'chunked'), /transfer-encoding/],
      [await header('Connection', 'upgrade'), /connection/],
      [await header('a b', 'x'), /token/],
      [await header('x', 'a\r\nhost: evil'), /characters/],
    ] as const) {
      assert.match(error, /^invalid-argument: /);
      assert.match(error, expected);
    }
    assert.match(await failure(guest, '/text', { body: new Uint8Array(4 * MIB + 1) }), /^limit-exceeded/);
  });

  describe('allowed addresses', () => {
    it('are only the granted hosts, also after redirects', async () => {
      const guest = inferlet({ grants: { hosts: [host, '*.example.com'] } });
      assert.match(await failure(guest, `http://${otherHost}/text`), /^unsupported: .*grants/);
      assert.match(await failure(guest, 'http://localhost/'), /^unsupported/);
      assert.match(await failure(inferlet({ grants: {} }), '/text'), /^unsupported/);
      const to = (url: string) => failure(guest, `/redirect/302?to=${encodeURIComponent(url)}`, { redirects: 3 });
      assert.match(await to(`http://${otherHost}/text`), /^unsupported: .*redirect/);
      assert.match(await to('file:///etc/passwd'), /^invalid-argument/);
    });

    it('include the hosts of images, by https and for inferlets with the grant only', async () => {
      const http = client({ imageHosts: ['images.example.com', '127.0.0.1:*', '*.test'] });
      const guest = inferlet({ grants: { hosts: [host], imageHosts: true }, http });
      for (const [url, request] of [
        ['http://images.example.com/a.png'],
        ['https://images.example.com:444/a.png'],
        ['https://example.com/a.png'],
        ['https://images.example.com.evil/a.png'],
        [`http://${otherHost}/text`],
      ] as readonly [string, Partial<Request>?][])
        assert.match(await failure(guest, url, request), /^unsupported: .*image_hosts/, url);
      assert.match(await failure(guest, 'https://images.test/', { method: 'POST' }), /^unsupported: .*manifest/);
      assert.match(await failure(inferlet({ http }), 'https://images.test/'), /^unsupported: .*manifest/);
      const to = (url: string) => failure(guest, `/redirect/302?to=${encodeURIComponent(url)}`, { redirects: 3 });
      assert.match(await to('https://example.com/'), /^unsupported: a redirect .*image_hosts/);
      // The server speaks no TLS: the request is sent, and fails.
      assert.match(await to(`https://${otherHost}/text`), /^unavailable/);
      assert.match(await failure(guest, `https://${otherHost}/text`), /^unavailable/);
    });

    it('include no private address unless the operator allows it', async () => {
      const hosts = ['127.0.0.1:*', 'localhost:*', '[::1]:*', '[::ffff:7f00:1]:*', '169.254.169.254', '0.0.0.0:*'];
      const guest = inferlet({ grants: { hosts }, http: client({ privateHosts: [] }) });
      const { port } = new URL(`http://${host}`);
      for (const name of ['127.0.0.1', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]', '2130706433', '0x7f.1']) {
        assert.match(await failure(guest, `http://${name}:${port}/text`), /^unsupported: .*private_hosts/, name);
      }
      assert.match(await failure(guest, 'http://169.254.169.254/latest/meta-data'), /^unsupported/);
      const elsewhere = inferlet({
        http: client({ privateHosts: [{ host: '10.0.0.1' }, { host: `127.0.0.1:${Number(port) + 1}` }] }),
      });
      assert.match(await failure(elsewhere, '/text'), /^unsupported/);
    });

    it('are the checked ones, even if the name resolves to another address later', async () => {
      const { port } = new URL(`http://${host}`);
      let lookups = 0;
      const loopback = { address: '127.0.0.1', family: 4 };
      const isolated = (lookup: HttpClientOptions['lookup']) => client({ privateHosts: [], lookup });
      const rebinding = isolated(async () => [lookups++ === 0 ? { address: '198.18.0.1', family: 4 } : loopback]);
      const grants = { hosts: ['rebind.example:*', 'mixed.example:*'] };
      const guest = inferlet({ grants, http: rebinding });
      assert.match(await failure(guest, `http://rebind.example:${port}/text`), /^unsupported/);
      assert.equal(lookups, 1);
      const asked: string[] = [];
      const trusted = client({
        privateHosts: [{ host: 'rebind.example' }],
        lookup: async (name) => {
          asked.push(name);
          return [loopback];
        },
      });
      const other = inferlet({ grants, http: trusted });
      assert.equal(await readAll(other, begin(other, `http://rebind.example:${port}/text`)), 'hello');
      assert.deepEqual(asked, ['rebind.example']);
      // The client removes the private addresses from a name's list of addresses; here all are private.
      const mixed = isolated(async () => [loopback, { address: '::ffff:127.0.0.1', family: 6 }]);
      const third = inferlet({ grants, http: mixed });
      assert.match(await failure(third, `http://mixed.example:${port}/text`), /^unsupported/);
    });
  });

  describe('redirects', () => {
    const via = (status: number, to: string) => `/redirect/${status}?to=${encodeURIComponent(to)}`;
    const secrets = [
      { name: 'authorization', value: 'Bearer s' },
      { name: 'cookie', value: 'c=1' },
      { name: 'x-api-key', value: 's' },
      { name: 'content-type', value: 'text/plain' },
    ];
    const post: Partial<Request> = { method: 'POST', body: Buffer.from('data'), headers: secrets, redirects: 2 };

    it('are followed up to the requested number; the redirect after that is returned as the response', async () => {
      const guest = inferlet();
      const exchange = begin(guest, via(302, via(302, '/text')), { redirects: 2 });
      assert.equal(value(await head(guest, exchange)).url, `http://${host}/text`);
      assert.equal(await readAll(guest, exchange), 'hello');
      const first = begin(guest, via(302, '/text'));
      const { status, headers } = value(await head(guest, first));
      assert.deepEqual([status, headers.find(({ name }) => name === 'location')?.value], [302, '/text']);
      assert.equal(await readAll(guest, first), 'elsewhere');
      assert.equal(value(await head(guest, begin(guest, '/loop', { redirects: 10 }))).status, 302);
      assert.equal(value(await head(guest, begin(guest, '/redirect/304?to=/text', { redirects: 1 }))).status, 304);
    });

    it('keep method and body, or become a GET, according to the status', async () => {
      const guest = inferlet();
      for (const [status, method, body] of [
        [301, 'GET', ''],
        [302, 'GET', ''],
        [303, 'GET', ''],
        [307, 'POST', 'data'],
        [308, 'POST', 'data'],
      ] as const) {
        const seen = await echo(guest, post, via(status, '/echo'));
        assert.deepEqual([seen.method, seen.body], [method, body], String(status));
        assert.equal(seen.headers['content-type'], body ? 'text/plain' : undefined);
        assert.deepEqual([seen.headers.authorization, seen.headers['x-api-key']], ['Bearer s', 's']);
      }
      assert.equal((await echo(guest, { method: 'PUT', redirects: 1 }, via(302, '/echo'))).method, 'PUT');
    });

    it('carry no credentials to another origin', async () => {
      const seen = await echo(inferlet(), post, via(307, `http://${otherHost}/echo`));
      assert.deepEqual([seen.headers.host, seen.body], [otherHost, 'data']);
      for (const name of ['authorization', 'cookie', 'x-api-key']) assert.equal(seen.headers[name], undefined, name);
    });
  });

  describe('bodies', () => {
    it('are decompressed, without the headers of the compression', async () => {
      const guest = inferlet();
      for (const path of ['/gzip', '/deflate', '/raw', '/twice']) {
        const exchange = begin(guest, path);
        const { headers } = value(await head(guest, exchange));
        assert.ok(!headers.some(({ name }) => name === 'content-encoding' || name === 'content-length'), path);
        assert.equal(await readAll(guest, exchange), TEXT, path);
      }
      const strange = begin(guest, '/strange');
      assert.ok(value(await head(guest, strange)).headers.some(({ name }) => name === 'content-encoding'));
      assert.equal(await readAll(guest, strange), 'uryyb');
      // A decoder of Brotli takes as much memory as the sender likes, so Brotli is neither requested nor decoded.
      const { headers } = await echo(guest, {});
      assert.equal(headers['accept-encoding'], 'gzip, deflate');
      const brotli = begin(guest, '/br');
      assert.ok(value(await head(guest, brotli)).headers.some(({ value: encoding }) => encoding === 'br'));
      const piece = value(await read(guest, brotli));
      assert.deepEqual(piece && Buffer.from(piece), brotliCompressSync(TEXT));
      assert.equal(await readAll(guest, begin(guest, '/gzip', { method: 'HEAD' })), '');
      assert.match(await failure(guest, '/broken'), /^unavailable/);
    });

    it('fail beyond 32 MiB after decompression, or beyond 64 MiB of input for one decoder', async () => {
      const guest = inferlet();
      const exchange = begin(guest, '/bomb');
      let received = 0;
      for (;;) {
        const piece = await read(guest, exchange);
        if (piece.tag === 'err') {
          assert.equal(piece.val.tag, 'limit-exceeded');
          break;
        }
        assert.ok(piece.val, 'the oversized body must fail');
        received += piece.val.length;
      }
      assert.ok(received <= 32 * MIB && received > 31 * MIB);
      assert.match(await failure(guest, '/nothing'), /^limit-exceeded/);
      await untilConnections(0);
    });

    it('are read only as fast as the inferlet reads', async () => {
      const guest = inferlet();
      const exchange = begin(guest, '/endless');
      value(await head(guest, exchange));
      const piece = value(await read(guest, exchange));
      assert.ok(piece && piece.length > 0);
      // Wait until the server can write no more, because the buffers of both sockets are full.
      for (let last = -1; last !== endlessBytes; await new Promise((resolve) => setTimeout(resolve, 50)))
        last = endlessBytes;
      assert.ok(endlessBytes < 24 * MIB, `${endlessBytes} bytes were taken from the server`);
      exchange.drop();
      await untilConnections(0);
    });

    it('that break off fail at that point', async () => {
      const guest = inferlet();
      const exchange = begin(guest, '/cut');
      value(await head(guest, exchange));
      assert.equal(Buffer.from(value(await read(guest, exchange)) ?? []).toString(), 'only this');
      breakOff();
      const broken = await read(guest, exchange);
      assert.equal(failureOf(broken), 'unavailable');
      assert.deepEqual(await read(guest, exchange), broken);
      assert.match(await failure(guest, '/rude'), /^unavailable/);
      assert.match(await failure(guest, '/upgrade'), /^unavailable/);
    });
  });

  describe('requests', () => {
    it('end at their time limit or at the deadline of the invocation', async () => {
      assert.match(await failure(inferlet(), '/never', { timeoutMs: 30 }), /^deadline-exceeded/);
      assert.match(await failure(inferlet({ deadlineAt: Date.now() + 30 }), '/never'), /^deadline-exceeded/);
      const stuck = client({ privateHosts: [{ host: 'slow.example' }], lookup: () => new Promise(() => undefined) });
      const guest = inferlet({ grants: { hosts: ['slow.example'] }, http: stuck });
      assert.match(await failure(guest, 'http://slow.example/', { timeoutMs: 30 }), /^deadline-exceeded/);
      // The time limit covers the head only. On a busy machine, the head may need more than the first limit.
      const slow = inferlet();
      let timeoutMs = 100;
      let exchange = begin(slow, '/slow', { timeoutMs });
      while ((await head(slow, exchange)).tag === 'err') {
        timeoutMs *= 2;
        exchange = begin(slow, '/slow', { timeoutMs });
      }
      const rest = (async () => [await read(slow, exchange), await read(slow, exchange)] as const)();
      await new Promise((resolve) => setTimeout(resolve, timeoutMs + 50));
      exchange.drop();
      const [first, second] = await rest;
      assert.equal(first.tag, 'ok');
      assert.equal(failureOf(second), 'closed');
    });

    it('share 32 MiB of bodies in flight, and give their part back when the body is sent or the exchange is dropped', async () => {
      const guest = inferlet();
      const body = new Uint8Array(4 * MIB);
      const post = (path: string) => begin(guest, path, { method: 'POST', body });
      const first = Array.from({ length: 8 }, () => post(`http://${otherHost}/unread`));
      assert.equal(guest.inferlet.outgoing.bytes, 32 * MIB);
      const refused = await head(guest, post('/text'));
      assert.equal(failureOf(refused), 'limit-exceeded');
      first[0]?.drop();
      // This server reads the whole body, so no bytes are in flight when the response is read.
      const answered = post('/echo');
      value(await head(guest, answered));
      assert.equal(guest.inferlet.outgoing.bytes, 28 * MIB);
      await guest.end();
      assert.deepEqual([guest.inferlet.outgoing.bytes, guest.inferlet.outgoing.calls], [0, 0]);
    });

    it('of one tenant leave room for requests of other tenants', async () => {
      const http = client({ lookup: () => new Promise(() => undefined) });
      const grants = { hosts: ['slow.test'] };
      const greedy = Array.from({ length: 64 }, () => inferlet({ http, tenant: 'greedy', grants }));
      for (const guest of greedy) for (let i = 0; i < 64; i++) begin(guest, 'http://slow.test/');
      const other = inferlet({ http, tenant: 'other', grants });
      const before = http.exchanges;
      begin(other, 'http://slow.test/');
      assert.equal(http.exchanges, before + 1);
      for (const guest of [...greedy, other]) await guest.end();
      assert.equal(http.exchanges, 0);
    });

    it('close their connection when dropped', async () => {
      const guest = inferlet();
      const exchange = begin(guest, '/never');
      await untilConnections(1);
      const waiting = head(guest, exchange);
      guest.call('http', '[resource-drop]exchange', exchange);
      const outcome = await waiting;
      assert.equal(failureOf(outcome), 'closed');
      await untilConnections(0);
    });

    it('end with the reason when the inferlet is stopped, and none begins later', async () => {
      const http = client();
      const guest = inferlet({ http });
      const waiting = [begin(guest, '/never'), begin(guest, '/slow')].map((exchange) => readAll(guest, exchange));
      const failures = Promise.allSettled(waiting);
      await untilConnections(2);
      guest.inferlet.stop(handlerError('cancelled', 'the client has left'));
      for (const outcome of await failures) {
        assert.match(String((outcome as PromiseRejectedResult).reason), /cancelled: the client has left/);
      }
      assert.match(await failure(guest, '/text'), /^cancelled/);
      await untilConnections(0);
      assert.equal(http.exchanges, 0);
    });

    it('are at most 64 of an inferlet at once; a dropped or complete one makes room for the next', async () => {
      const http = client();
      const guest = inferlet({ http });
      const first = Array.from({ length: 64 }, () => begin(guest, '/never'));
      assert.match(await failure(guest, '/text'), /^limit-exceeded/);
      first[0]?.drop();
      assert.equal(await readAll(guest, begin(guest, '/text')), 'hello');
      assert.equal(await readAll(guest, begin(guest, '/text')), 'hello');
      assert.equal(http.exchanges, 63);
      await guest.end();
      await untilConnections(0);
      assert.equal(http.exchanges, 0);
    });
  });
});
