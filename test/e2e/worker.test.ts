import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startWorker } from '#gateway/testing/miniflare.ts';
import { readEvents, terminal, text } from '#test/harness/events.ts';
import { deployFunction, functionsPlatform } from '#test/harness/functions.ts';

test('a story streams from the Node origin through the gateway in workerd', async () => {
  const platform = await functionsPlatform();
  await deployFunction('text-completion');
  const worker = await startWorker(platform.url);
  try {
    const response = await fetch(`${worker.url}/v1/functions/text-completion/invocations`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${platform.apiKey}`,
        'content-type': 'application/json',
        accept: 'text/event-stream',
      },
      body: JSON.stringify({ prompt: '', maxTokens: 32, temperature: 0 }),
    });
    assert.equal(response.status, 200);
    const events = await readEvents(response);
    assert.match(text(events), /^\s*Once upon a time, there was a little girl named L/);
    assert.equal(terminal(events)?.event, 'result');
  } finally {
    await worker.stop();
  }
});
