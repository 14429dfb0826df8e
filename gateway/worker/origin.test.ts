import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { startCuttingProxy } from '../testing/cutting-proxy.ts';
import { ECHO_SCHEMA, Harness, JSON_TYPE } from '../testing/http/harness.ts';
import { startWorker } from '../testing/miniflare.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { type OriginOptions, originControlPlane } from './control-plane.ts';

describe('a worker whose connection to the origin breaks', () => {
  let platform: GatewayPlatform;
  let proxy: Awaited<ReturnType<typeof startCuttingProxy>>;
  let worker: Awaited<ReturnType<typeof startWorker>>;
  /** Bytes of answers after which the proxy cuts a connection to the origin. */
  let cutAfter = Number.POSITIVE_INFINITY;

  before(async () => {
    platform = await GatewayPlatform.start();
    proxy = await startCuttingProxy(new URL(platform.url), () => cutAfter);
    worker = await startWorker(proxy.url);
    await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  });
  after(async () => {
    await worker.stop();
    await proxy.stop();
    await platform.stop();
  });

  it('asks its client to reconnect, and the client misses no event', async () => {
    const client = platform.client(platform.apiKey, worker.url);
    const stream = await client.invoke('echo', { prompt: 'a' });
    const attempt = await platform.attempt(stream.id);
    cutAfter = 3000;
    const writing = (async () => {
      for (let i = 1; i <= 100; i++) await attempt.say(`${i} ${'x'.repeat(100)}`);
      await attempt.succeed(null);
    })();
    proxy.cut();
    const seen: number[] = [];
    for await (const { id } of stream) seen.push(Number(id.replace(`${attempt.epoch}-`, '')));
    await writing;
    // The numbers of the 100 messages and of the result.
    assert.deepEqual(
      seen,
      Array.from({ length: 101 }, (_, i) => i + 1),
    );
    assert.ok(proxy.cuts() > 1, `the connection was cut ${proxy.cuts()} times`);
    cutAfter = Number.POSITIVE_INFINITY;
  });

  it('ends a stream with an error frame and refuses requests when the origin is gone', async () => {
    const h = new Harness({ url: worker.url, platform, stop: async () => undefined });
    const { response, attempt } = await h.stream();
    await attempt.say('one');
    await proxy.stop();
    assert.match(await response.text(), /event: error\ndata: \{"code":"origin-unavailable".*"resumable":true/);
    for (const path of ['/v1/functions', '/docs/guides', '/docs/guides/operate'])
      h.refused(await h.ask(path), 'origin-unavailable');
    assert.equal((await fetch(`${worker.url}/readyz`)).status, 503);
  });
});

/** Listens in place of the origin until a request comes, and breaks its connection. Resolves to the method and path of the request. */
async function breakOneRequest(port: number): Promise<string> {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    const [{ method, url }] = await once(server, 'request', { signal: AbortSignal.timeout(240_000) });
    return `${method} ${url}`;
  } finally {
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  }
}

it('a worker cancels an invocation whose id its client did not get, also when the origin restarts at that moment', async () => {
  const platform = await GatewayPlatform.start();
  const connect = (port?: number) => startCuttingProxy(new URL(platform.url), () => Number.POSITIVE_INFINITY, port);
  const proxies = [await connect()];
  const url = proxies[0]!.url;
  const worker = await startWorker(url);
  try {
    await platform.register({ name: 'openai-chat' });
    const h = new Harness({ url: worker.url, platform, stop: async () => undefined });
    const body = JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'Hi' }] });
    const answer = h.ask('/v1/chat/completions', { method: 'POST', body, headers: JSON_TYPE });
    const { id } = await platform.attempt(await platform.submitted('openai-chat'));
    await proxies[0]!.stop();
    const refusal = await answer;
    h.refused(refusal, 'origin-unavailable');
    assert.equal(refusal.headers.get('x-should-retry'), 'true');
    const port = Number(new URL(url).port);
    assert.equal(await breakOneRequest(port), `DELETE /v1/invocations/${id}?reason=The%20client%20left.`);
    proxies.push(await connect(port));
    const { invocations } = platform.scheduler;
    await eventually(async () => (await invocations.get(id))?.cancelReason === 'The client left.', 'the cancel');
  } finally {
    await worker.stop();
    for (const proxy of proxies) await proxy.stop();
    await platform.stop();
  }
});

describe('the control plane over HTTP', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start();
    await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  });
  after(() => platform.stop());

  const request = { function: { name: 'echo' }, check: () => undefined, input: '{"prompt":"a"}' };

  /** Makes a control plane whose requests pass through `fetch`, and a `Call` for its methods. */
  async function controlThrough(fetch: NonNullable<OriginOptions['fetch']>) {
    const control = originControlPlane({ log: silentLog, url: platform.url, fetch });
    const principal = (await control.authenticate(platform.apiKey))!;
    const call = { principal, requestId: 'r', traceparent: '', signal: AbortSignal.timeout(240_000) };
    return { control, call };
  }

  /** Invokes `echo`; `treat` may replace the origin's answer to each submission. Asserts that exactly one invocation was made, and returns it. */
  async function invokedOnce(treat: (answer: Response, submission: number) => Promise<Response>) {
    let submissions = 0;
    const { control, call } = await controlThrough(async (url, init) => {
      const answer = await fetch(url, init);
      return init.method === 'POST' ? treat(answer, ++submissions) : answer;
    });
    const h = new Harness({ url: platform.url, platform, stop: async () => undefined });
    const known = await h.invocations();
    const invoked = (await control.invoke(call, request))!;
    assert.deepEqual(await h.invocations(), new Set([...known, invoked.id]));
    assert.equal(invoked.replayed, undefined);
    return invoked;
  }

  for (const hasEnded of [false, true]) {
    it(`makes one invocation when the first answer is lost${hasEnded ? ' and the invocation ends meanwhile' : ''}`, async () => {
      const { status } = await invokedOnce(async (answer, submission) => {
        if (submission > 1) return answer;
        const { id } = (await answer.json()) as { id: string };
        if (hasEnded) await (await platform.attempt(id)).succeed(1);
        throw new TypeError('the connection broke');
      });
      assert.equal(status, hasEnded ? 'succeeded' : 'queued');
    });
  }

  it('makes one invocation when a proxy answers in place of the origin, and then refuses connections for a moment', async () => {
    const html = (status: number) => new Response('<html>', { status, headers: { 'content-type': 'text/html' } });
    const seen: number[] = [];
    const { status } = await invokedOnce(async (answer, submission) => {
      seen.push(answer.status);
      if (submission === 1) return html(502);
      if (submission === 2) return html(200);
      if (submission < 5) throw new TypeError('connect ECONNREFUSED');
      return answer;
    });
    assert.deepEqual([status, seen], ['queued', [202, 409, 409, 409, 409]]);
  });

  it('reports at once that a proxy refuses a submission', async () => {
    let submissions = 0;
    const { control, call } = await controlThrough(async (url, init) => {
      if (init.method !== 'POST') return fetch(url, init);
      submissions += 1;
      return new Response('<html>', { status: 403 });
    });
    await assert.rejects(control.invoke(call, request), { code: 'origin-unavailable' });
    assert.equal(submissions, 1);
  });

  it('lets the origin withdraw a submission and its repeats when Redis does not answer them in time', async () => {
    let submissions = 0;
    let repeat: () => Promise<Response> = assert.fail;
    // The connection of the second submission breaks while the origin waits for Redis. Redis answers again once that submission has failed.
    const { control, call } = await controlThrough(async (url, init) => {
      if (init.method === 'POST') submissions += 1;
      if (init.method !== 'POST' || submissions !== 2) return fetch(url, init);
      repeat = () => fetch(url, init);
      void repeat().finally(() => process.kill(platform.redis.pid!, 'SIGCONT'));
      await sleep(500);
      throw new TypeError('the connection broke');
    });
    const openIds = async () => {
      const { invocations } = await platform.client().operations.invocations({ status: ['queued', 'running'] });
      return invocations.map(({ id }) => id);
    };
    await control.invoke(call, request);
    // The origin caches a key for 1.5 s. After this pause `openIds` renews the entry: the submission below must pass authentication without Redis.
    await sleep(1500);
    const openIdsBefore = await openIds();
    process.kill(platform.redis.pid!, 'SIGSTOP');
    try {
      await assert.rejects(control.invoke(call, request), { code: 'store-unavailable' });
    } finally {
      process.kill(platform.redis.pid!, 'SIGCONT');
    }
    await eventually(() => platform.scheduler.withdrawals.size === 0, 'the withdrawal ends');
    assert.equal(submissions, 3);
    assert.equal((await repeat()).status, 503, 'the key leads to no withdrawn invocation');
    assert.deepEqual(await openIds(), openIdsBefore);
  });

  it('reports why the origin refuses to describe a file', async () => {
    const { control, call } = await controlThrough(async (url, init) => {
      if (!url.includes('/files')) return fetch(url, init);
      const body = init.method === 'HEAD' ? null : JSON.stringify({ code: 'tenant-suspended', detail: 'Suspended.' });
      return new Response(body, { status: 403, headers: { 'content-type': 'application/problem+json' } });
    });
    await assert.rejects(control.fileInfo(call, 'inv-1', 'a.txt'), { code: 'tenant-suspended' });
  });
});
