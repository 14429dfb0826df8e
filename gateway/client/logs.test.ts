import assert from 'node:assert/strict';
import { after, before, describe, it, test } from 'node:test';
import { startCuttingProxy } from '../testing/cutting-proxy.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { PieClient } from './client.ts';

test('following a log ends with an error when a line is not JSON', async () => {
  const client = new PieClient({
    url: 'http://127.0.0.1:9',
    apiKey: 'x',
    fetch: async () =>
      new Response('event: log\ndata: {"cut\n\n', { headers: { 'content-type': 'text/event-stream' } }),
  });
  const follow = async () => {
    for await (const { message } of client.followLogs('echo', { signal: AbortSignal.timeout(10_000) }))
      assert.fail(message);
  };
  await assert.rejects(follow, { code: 'bad-response' });
});

describe('following a log', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start();
  });
  after(() => platform.stop());

  for (const startOptions of [{ since: '1ms' }, { limit: 1 }]) {
    it(`starts at the time of the first request, even when its stream breaks before the first line: ${JSON.stringify(startOptions)}`, async () => {
      const name = `quiet-${Object.keys(startOptions)[0]}`;
      await platform.register({ name });
      const { id } = await platform.client().submit(name, {});
      const attempt = await platform.attempt(id);
      const write = (message: string) => attempt.append({ event: 'log', data: { level: 'info', message } });
      const proxy = await startCuttingProxy(new URL(platform.url), () => Number.POSITIVE_INFINITY);
      const seen: string[] = [];
      try {
        const follower = new PieClient({
          url: proxy.url,
          apiKey: platform.apiKey,
          fetch: async (url, init) => {
            const response = await fetch(url, init);
            if (proxy.cuts() > 0) return response;
            proxy.cut();
            for (const message of ['one', 'two', 'three']) await write(message);
            return response;
          },
        });
        const signal = AbortSignal.timeout(240_000);
        for await (const { message } of follower.followLogs(name, { ...startOptions, signal })) {
          seen.push(message);
          if (message === 'three') break;
        }
      } finally {
        await proxy.stop();
      }
      assert.deepEqual(seen, ['one', 'two', 'three']);
    });
  }
});
