import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { startCuttingProxy } from '../testing/cutting-proxy.ts';
import { ECHO_SCHEMA, Harness } from '../testing/http/harness.ts';
import { startWorker } from '../testing/miniflare.ts';
import { TestPlatform } from '../testing/platform.ts';

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
