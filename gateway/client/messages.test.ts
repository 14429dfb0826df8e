import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ECHO_SCHEMA } from '../testing/http/harness.ts';
import { GatewayPlatform } from '../testing/platform.ts';
import { PieClient } from './client.ts';

test('a message reaches the inbox once, although the answer to the first request is lost', async (t) => {
  const platform = await GatewayPlatform.start();
  t.after(() => platform.stop());
  const client = platform.client();
  await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  const { id } = await client.submit('echo', { prompt: 'a' });
  let lostAnswers = 0;
  const testClient = new PieClient({
    url: platform.url,
    apiKey: platform.apiKey,
    fetch: async (url, init) => {
      const answer = await fetch(url, init);
      if (lostAnswers > 0) return answer;
      lostAnswers += 1;
      throw new TypeError('the connection broke');
    },
  });
  for (let sent = 1; sent <= 2; sent += 1) {
    await testClient.send(id, 'a');
    const { redis, keys } = platform.scheduler.store;
    assert.deepEqual([await redis.llen(keys.inbox(id)), lostAnswers], [sent, 1]);
  }
});
