import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { eventually } from '#scheduler/testing/fixture.ts';
import { startCuttingProxy } from '../testing/cutting-proxy.ts';
import { ECHO_SCHEMA, Harness } from '../testing/http/harness.ts';
import { startWorker } from '../testing/miniflare.ts';
import { TestPlatform } from '../testing/platform.ts';
import { OriginControlPlane, type OriginOptions } from './control-plane.ts';

describe('a worker whose connection to the origin breaks', () => {
  let platform: TestPlatform;
  let proxy: Awaited<ReturnType<typeof startCuttingProxy>>;
  let worker: Awaited<ReturnType<typeof startWorker>>;
  /** Bytes of answers after which the proxy cuts a connection to the origin. */
  let cutAfter = Number.POSITIVE_INFINITY;

  before(async () => {
    platform = await TestPlatform.start();
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
    h.refused(await h.ask('/v1/functions'), 'origin-unavailable');
    assert.equal((await fetch(`${worker.url}/readyz`)).status, 503);
  });
});

describe('the control plane over HTTP', () => {
  let platform: TestPlatform;
  before(async () => {
    platform = await TestPlatform.start();
    await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  });
  after(() => platform.stop());

  const request = { function: { name: 'echo' }, check: () => undefined, input: '{"prompt":"a"}' };

  /** A control plane whose requests pass through `fetch`, and a call of it. */
  async function through(fetch: NonNullable<OriginOptions['fetch']>) {
    const control = new OriginControlPlane({ url: platform.url, fetch });
    const principal = (await control.authenticate(platform.apiKey))!;
    const call = { principal, requestId: 'r', traceparent: '', signal: AbortSignal.timeout(30_000) };
    return { control, call };
  }

  for (const hasEnded of [false, true]) {
    it(`makes one invocation when the first answer is lost${hasEnded ? ' and the invocation ends meanwhile' : ''}`, async () => {
      let lost = 0;
      const { control, call } = await through(async (url, init) => {
        const response = await fetch(url, init);
        if (init.method !== 'POST' || lost > 0) return response;
        lost += 1;
        const { id } = (await response.json()) as { id: string };
        if (hasEnded) await (await platform.attempt(id)).succeed(1);
        throw new TypeError('the connection broke');
      });
      const h = new Harness({ url: platform.url, platform, stop: async () => undefined });
      const known = await h.invocations();
      const invoked = await control.invoke(call, request);
      assert.deepEqual(await h.invocations(), new Set([...known, invoked.id]));
      assert.deepEqual([lost, invoked.status, invoked.replayed], [1, hasEnded ? 'succeeded' : 'queued', undefined]);
    });
  }

  it('lets the origin withdraw a submission that Redis does not answer in time', async () => {
    const { control, call } = await through(fetch);
    const open = async () => {
      const { invocations } = await platform.client().operations.invocations({ status: ['queued', 'running'] });
      return invocations.map(({ id }) => id);
    };
    await control.invoke(call, request);
    const before = await open();
    process.kill(platform.redis.pid!, 'SIGSTOP');
    try {
      await assert.rejects(control.invoke(call, request), { code: 'store-unavailable' });
    } finally {
      process.kill(platform.redis.pid!, 'SIGCONT');
    }
    await eventually(() => platform.scheduler.withdrawals.size === 0, 'the withdrawal ends');
    assert.deepEqual(await open(), before);
  });

  it('passes on why the origin refuses to name a file', async () => {
    const { control, call } = await through(async (url, init) => {
      if (!url.includes('/files')) return fetch(url, init);
      const body = init.method === 'HEAD' ? null : JSON.stringify({ code: 'tenant-suspended', detail: 'Suspended.' });
      return new Response(body, { status: 403, headers: { 'content-type': 'application/problem+json' } });
    });
    await assert.rejects(control.fileInfo(call, 'inv-1', 'a.txt'), { code: 'tenant-suspended' });
  });
});
