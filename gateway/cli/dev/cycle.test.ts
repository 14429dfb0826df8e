import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { type CallOptions, PieClient } from '../../client/client.ts';
import { TestPlatform } from '../../testing/platform.ts';
import { Terminal } from '../terminal.ts';
import { invokeOnce } from './cycle.ts';

describe('invokeOnce', () => {
  let platform: TestPlatform;
  before(async () => {
    platform = await TestPlatform.start();
    await platform.register({ name: 'short' });
  });
  after(() => platform.stop());

  it('shows the result of an invocation that ended before its session was closed, without log lines', async () => {
    /** Writes a log line and ends the invocation before it sends the request that closes the session. */
    class LateClosingClient extends PieClient {
      override async closeSession(id: string, options?: CallOptions): Promise<void> {
        const attempt = await platform.attempt(id);
        await attempt.append({ event: 'log', data: { level: 'info', message: 'shown elsewhere' } });
        await attempt.succeed('done');
        await super.closeSession(id, options);
      }
    }
    const out = new PassThrough();
    const terminal = new Terminal({ json: true, out: out as unknown as NodeJS.WriteStream });
    const client = new LateClosingClient({ url: platform.url, apiKey: platform.apiKey });
    await invokeOnce(client, 'short', {}, terminal, new AbortController().signal);
    out.end();
    const lines = (await text(out)).trim().split('\n');
    const events = lines.map((line) => JSON.parse(line) as { event?: string; data?: { output?: unknown } });
    assert.deepEqual(
      events.map(({ event, data }) => [event, data?.output]),
      [['result', 'done']],
    );
  });
});
