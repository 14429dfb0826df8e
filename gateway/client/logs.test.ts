import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PieClient } from './client.ts';

test('following a log ends with an error when a line is not JSON', async () => {
  const client = new PieClient({
    ...{ url: 'http://127.0.0.1:9', apiKey: 'x' },
    fetch: async () =>
      new Response('event: log\ndata: {"cut\n\n', { headers: { 'content-type': 'text/event-stream' } }),
  });
  const follow = async () => {
    for await (const { message } of client.followLogs('echo', { signal: AbortSignal.timeout(10_000) }))
      assert.fail(message);
  };
  await assert.rejects(follow, { code: 'bad-response' });
});
