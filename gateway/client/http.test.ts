import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PieClient } from './client.ts';
import type { PieError } from './errors.ts';

describe('a header that no request can carry', () => {
  /** Number of requests that the client has sent. It stays 0, because the client refuses the header before it sends the request. */
  let requestCount = 0;
  const fetch = async () => {
    requestCount += 1;
    throw new TypeError('fetch failed');
  };
  const refusedAs = (field: string) => (error: PieError) => {
    assert.deepEqual([error.code, error.field, error.retryable, requestCount], ['invalid-input', field, false, 0]);
    assert.match(error.hint ?? '', /visible ASCII/);
    assert.doesNotMatch(`${error.message}${error.hint}${error.cause}`, /ключ|日本/);
    return true;
  };

  it('is refused at once, with the name of the header', async () => {
    const client = new PieClient({ url: 'http://127.0.0.1:9', apiKey: 'x', fetch });
    const headers = { 'concurrency-key': { concurrency: { key: '日本' } }, 'x-session-affinity': { affinity: 'a\nb' } };
    for (const [field, options] of Object.entries(headers)) {
      await assert.rejects(client.submit('echo', {}, options), refusedAs(field));
      await assert.rejects(client.invoke('echo', {}, options), refusedAs(field));
    }
    await assert.rejects(client.functions({ requestId: '日本' }), refusedAs('x-request-id'));
    await assert.rejects(client.submit('echo', {}, { idempotencyKey: 'a\x1b[2J' }), refusedAs('idempotency-key'));
  });

  it('is refused in the same way when it carries the API key', async () => {
    const client = new PieClient({ url: 'http://127.0.0.1:9', apiKey: 'ключ', fetch });
    await assert.rejects(client.submit('echo', {}), refusedAs('authorization'));
  });
});
