import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { after, before, describe, it } from 'node:test';
import { openTelemetry } from '#infra/telemetry/telemetry.ts';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { DEFAULT_LIMITS } from '../app/context.ts';
import { Bodies } from '../app/http/bodies.ts';
import type { AnsweredRequest } from '../app/http/observer.ts';
import { OpenStreams } from '../app/http/open-streams.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { Connections } from './http/connections.ts';
import { serve } from './http/server.ts';
import { watchRequests } from './platform-metrics.ts';

const KIB = 1024;
/** One tenant may hold a quarter of `heldBodyBytes`, and more while all tenants together hold at most half of it. */
const LIMITS = {
  heldBodyBytes: 256 * KIB,
  bodyGraceMs: 60_000,
  bodyBytesPerSecond: 2 ** 30,
  streams: 100,
  streamsPerKey: 3,
};
const PATH = '/v1/functions/echo/invocations';

describe('a gateway with bounds on held bytes and open streams', () => {
  let platform: GatewayPlatform;
  const bodies = new Bodies(LIMITS);
  const streams = new OpenStreams(LIMITS, 'streams');
  const log = new CollectedLog();
  const answers: AnsweredRequest[] = [];
  before(async () => {
    const observer = {
      begin: () => ({ traceparent: '', answered: (answer: AnsweredRequest) => void answers.push(answer) }),
    };
    platform = await GatewayPlatform.start({ serve: { limits: LIMITS, bodies, streams, observer, log } });
    await platform.register({ name: 'echo' });
  });
  after(() => platform.stop());

  /** A request whose body the test sends; chunked unless it has a `content-length`. */
  function begin(key = platform.apiKey, more: Record<string, string> = {}) {
    const { hostname, port } = new URL(platform.url);
    const request = http.request({
      hostname,
      port,
      method: 'POST',
      path: PATH,
      agent: false,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', prefer: 'respond-async', ...more },
    });
    request.on('error', () => undefined);
    const answer = once(request, 'response').then(async ([response]: http.IncomingMessage[]) => {
      assert.ok(response);
      let text = '';
      for await (const chunk of response) text += chunk;
      return { status: response.statusCode, headers: response.headers, code: JSON.parse(text).code };
    });
    return { request, answer };
  }

  const until = async (holds: () => boolean) => {
    while (!holds()) await new Promise((resolve) => setImmediate(resolve));
  };

  it('a body beyond the share of its tenant is refused with 429, and other tenants are served', {
    timeout: 240_000,
  }, async () => {
    const slow = begin();
    slow.request.write(`"${'x'.repeat(100 * KIB)}`);
    await until(() => bodies.heldBytes > 64 * KIB);
    // Together, the two bodies of the tenant exceed half of 256 KiB.
    const second = begin();
    second.request.end(`"${'y'.repeat(60 * KIB)}"`);
    const refused = await second.answer;
    assert.deepEqual([refused.status, refused.code, refused.headers['retry-after']], [429, 'too-many-requests', '1']);
    const other = begin(await platform.key(['invoke', 'deploy'], 'other'));
    other.request.end(`"${'z'.repeat(20 * KIB)}"`);
    assert.equal((await other.answer).code, 'unknown-function', 'the gateway serves another tenant');
    slow.request.end('"');
    assert.equal((await slow.answer).status, 202);
    await until(() => bodies.heldBytes === 0);
  });

  it('a body is released when its client leaves, and no fault is logged', { timeout: 240_000 }, async () => {
    // A body without a declared length, one above a block of 16 KiB (the gateway reads it in pieces), and one below (read in one step).
    const declared: Record<string, string>[] = [{}, { 'content-length': '60000' }, { 'content-length': '10000' }];
    for (const headers of declared) {
      answers.length = 0;
      const { request, answer } = begin(platform.apiKey, headers);
      request.write(`"${'x'.repeat(8 * KIB)}`);
      await until(() => bodies.heldBytes > 0);
      request.destroy();
      await assert.rejects(answer);
      await until(() => bodies.heldBytes === 0 && answers.length === 1);
      assert.deepEqual([answers[0]?.code, answers[0]?.status], ['malformed-request', 400]);
    }
    assert.deepEqual(log.records, []);
  });

  it('a download beyond the share of its tenant is refused with 429 before the file is read', async () => {
    const begun = begin();
    begun.request.end('1');
    assert.equal((await begun.answer).status, 202);
    const id = await platform.submitted('echo');
    for (const [name, size] of [
      ['small', 100 * KIB],
      ['large', 200 * KIB],
    ] as const) {
      await platform.scheduler.files.put(id, name, 'text/plain', new Uint8Array(size));
    }
    const get = (name: string, method = 'GET') =>
      fetch(`${platform.url}/v1/invocations/${id}/files/${name}`, {
        method,
        headers: { authorization: `Bearer ${platform.apiKey}` },
      });
    const refused = await get('large');
    assert.deepEqual([refused.status, ((await refused.json()) as { code: string }).code], [429, 'too-many-requests']);
    assert.equal((await (await get('small')).arrayBuffer()).byteLength, 100 * KIB);
    for (let i = 0; i < 3; i++) {
      const { status, headers } = await get('large', 'HEAD');
      assert.deepEqual([status, headers.get('content-length')], [200, String(200 * KIB)]);
    }
    await until(() => bodies.heldBytes === 0);
  });

  it('an input holds memory by its bytes, not by its characters', async () => {
    const known = new Set((await platform.scheduler.invocations.recent('default', 'echo')).map(({ id }) => id));
    const begun = begin();
    // 24 Ki characters of three bytes. The gateway holds two copies: 144 KiB, more than half of 256 KiB. Counted by characters, they would fit.
    begun.request.end(`"${'語'.repeat(24 * KIB)}"`);
    assert.equal((await begun.answer).status, 202);
    const id = await platform.submitted('echo', known);
    const headers = { authorization: `Bearer ${platform.apiKey}` };
    assert.equal((await fetch(`${platform.url}/v1/invocations/${id}/input`, { headers })).status, 429);
    await until(() => bodies.heldBytes === 0);
  });

  describe('answers that hold memory', () => {
    const KEY = { 'idempotency-key': 'large' };
    let id = '';
    const ask = (path: string, init: RequestInit & { headers?: Record<string, string> } = {}) =>
      fetch(`${platform.url}${path}`, {
        ...init,
        headers: { authorization: `Bearer ${platform.apiKey}`, 'content-type': 'application/json', ...init.headers },
      });
    const codeOf = async (response: Response) => ((await response.json()) as { code: string }).code;

    before(async () => {
      const begun = await ask(PATH, { method: 'POST', body: '1', headers: { ...KEY, prefer: 'respond-async' } });
      id = ((await begun.json()) as { id: string }).id;
      const attempt = await platform.attempt(id);
      await attempt.start();
      for (let i = 0; i < 5; i++)
        await attempt.append({ event: 'log', data: { level: 'info', message: 'l'.repeat(15_000) } });
      await attempt.succeed('x'.repeat(80 * KIB));
    });

    it('results and logs beyond the share of their tenant are refused with 429; a repeated request begins no invocation', async () => {
      for (const path of [`/v1/invocations/${id}`, '/v1/logs']) {
        const refused = await ask(path);
        assert.deepEqual([refused.status, await codeOf(refused)], [429, 'too-many-requests'], path);
      }
      const invocations = async () =>
        (await platform.scheduler.invocations.recent('default', 'echo')).map((invocation) => invocation.id);
      const known = await invocations();
      // If the gateway began another invocation, its answer would not come, and this time limit would fail the test.
      const signal = AbortSignal.timeout(30_000);
      const repeated = await ask(PATH, { method: 'POST', body: '1', headers: KEY, signal });
      assert.deepEqual([repeated.status, await codeOf(repeated)], [429, 'too-many-requests']);
      assert.equal(repeated.headers.get('x-should-retry'), 'true');
      assert.deepEqual(await invocations(), known, 'the key finds the invocation again');
      assert.ok(known.includes(id));
      assert.equal((await ask(`/v1/invocations/${id}`, { method: 'HEAD' })).status, 429);
      await until(() => bodies.heldBytes === 0);
    });

    it('lists of functions and of invocations are still answered', async () => {
      assert.equal((await ask('/v1/functions')).status, 200);
      assert.equal((await ask('/v1/invocations')).status, 200);
      await until(() => bodies.heldBytes === 0);
    });

    it('a stream beyond the share of its tenant ends, can be resumed, and holds no memory afterwards', async () => {
      const streamed = await ask('/v1/logs', { headers: { accept: 'text/event-stream' } });
      assert.match(await streamed.text(), /"code":"too-many-requests".*"resumable":true/);
      await until(() => bodies.heldBytes === 0 && streams.open === 0);
    });
  });

  it('a slow body is refused with 408 and its connection is closed', { timeout: 240_000 }, async () => {
    const hasty = await serve(platform.control, {
      log: silentLog,
      host: '127.0.0.1',
      port: 0,
      limits: { ...LIMITS, bodyGraceMs: 100 },
    });
    for (const length of ['content-length: 10', 'transfer-encoding: chunked']) {
      const { hostname, port } = new URL(hasty.url);
      const socket = net.connect(Number(port), hostname);
      socket.write(
        `POST ${PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${platform.apiKey}\r\ncontent-type: application/json\r\n${length}\r\n\r\n1\r\n"\r\n`,
      );
      let text = '';
      for await (const chunk of socket) text += chunk;
      assert.match(text, /^HTTP\/1\.1 408 /);
      assert.match(text, /"code":"body-timeout"/);
    }
    await hasty.close(0);
  });

  it("Node's time limit on a request lets the largest body arrive at the minimum speed", async () => {
    let server: http.Server | undefined;
    const noteServer = (message: unknown) => {
      ({ server } = message as { server: http.Server });
    };
    subscribe('http.server.request.start', noteServer);
    assert.equal((await fetch(`${platform.url}/healthz`)).status, 200);
    unsubscribe('http.server.request.start', noteServer);
    // The gateway refuses a body below 16 KiB a second.
    const slowestMs = (DEFAULT_LIMITS.componentBytes / (16 * KIB)) * 1000;
    assert.ok((server?.requestTimeout ?? 0) > slowestMs, 'Node does not cut it off');
    assert.ok((server?.headersTimeout ?? 0) <= 60_000, 'the headers must still come soon');
  });

  it('streams and waiting answers beyond the bound are refused, and other requests are served', {
    timeout: 240_000,
  }, async () => {
    const headers = { authorization: `Bearer ${platform.apiKey}`, 'content-type': 'application/json' };
    const ask = (accept: string, signal?: AbortSignal) =>
      fetch(`${platform.url}${PATH}`, {
        method: 'POST',
        body: '1',
        headers: { ...headers, accept },
        signal: signal ?? null,
      });
    const leave = new AbortController();
    const streamed = await Promise.all([
      ask('text/event-stream', leave.signal),
      ask('text/event-stream', leave.signal),
    ]);
    const known = new Set((await platform.scheduler.invocations.recent('default', 'echo')).map(({ id }) => id));
    const waiting = ask('application/json');
    const id = await platform.submitted('echo', known);
    assert.equal(streams.open, 3);
    const refused = await ask('application/json');
    assert.deepEqual(
      [refused.status, ((await refused.json()) as { code: string }).code, refused.headers.get('retry-after')],
      [429, 'too-many-requests', '1'],
    );
    assert.equal(
      (await platform.scheduler.invocations.recent('default', 'echo')).length,
      known.size + 1,
      'the refused request began no invocation',
    );
    const status = await fetch(`${platform.url}/v1/invocations/${id}`, { headers });
    assert.equal(status.status, 200, 'the key may still read states');
    await (await platform.attempt(id)).succeed(1);
    assert.equal((await waiting).status, 200);
    leave.abort();
    await until(() => streams.open === 0);
    assert.ok(streamed.every(({ status }) => status === 200));
  });

  it('the metrics show held bodies, open streams and connections', async () => {
    const telemetry = await openTelemetry({
      settings: { sampleRatio: 1, serviceNamespace: 'pie', metricsPublic: false },
      room: 'gateway',
      process: 'gateway',
      log: silentLog,
    });
    watchRequests(telemetry.meter, { bodies, streams, connections: new Connections(100) });
    const leave = streams.enter({ keyId: 'k', tenant: 't' });
    const families = await telemetry.collect();
    const pointOf = (name: string, state: string) =>
      families.find((family) => family.name === name)?.points.find((point) => point.labels.state === state);
    assert.equal((pointOf('pie.gateway.streams', 'open') as { value: number }).value, 1);
    assert.equal((pointOf('pie.gateway.streams', 'all') as { value: number }).value, LIMITS.streams);
    assert.equal((pointOf('pie.gateway.bodies', 'held') as { value: number }).value, 0);
    assert.equal((pointOf('pie.gateway.bodies', 'all') as { value: number }).value, LIMITS.heldBodyBytes);
    assert.equal((pointOf('pie.gateway.connections', 'all') as { value: number }).value, 100);
    leave();
    await telemetry.close();
  });
});
