import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { type CallOptions, PieClient } from '../../client/client.ts';
import type { InvocationStream, PieEvent } from '../../client/invocation-stream.ts';
import { GatewayPlatform } from '../../testing/platform.ts';
import { follow } from '../commands/invoke.ts';
import { Terminal } from '../terminal.ts';
import { invokeOnce } from './cycle.ts';

describe('invokeOnce', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start();
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

describe('follow', () => {
  it('keeps the messages before a question when a later attempt voids the messages after it', async () => {
    const asked = { id: '0', event: 'question', data: { text: 'Publish?', schema: true, until: 'noon' } };
    const warning = (message: string) => ({ id: '0', event: 'log', data: { level: 'warn', message } });
    const start = (attempt: number) => ({ id: '0', event: 'start', data: { attempt } });
    const result = { id: '0', event: 'result', data: { output: 'the result', usage: {} } };
    const message = (words: string) => ({ id: '0', event: 'message', data: { text: words } });
    const shown = async (events: readonly object[]) => {
      const [out, err] = [new PassThrough(), new PassThrough()] as const;
      const terminal = new Terminal({ json: false, out: out as never, err: err as never });
      async function* read() {
        yield* events as readonly PieEvent[];
      }
      const stream = Object.assign(read(), { id: 'inv_1' }) as unknown as InvocationStream;
      await follow(stream, { terminal, logs: false, lines: false });
      out.end();
      err.end();
      // Leave out the question, the hint how to answer it, and the text after the last line break.
      return [await text(out), (await text(err)).split('\n').slice(2, -1)];
    };
    const answered = [start(1), message('A draft.'), warning('of the function'), asked, start(2)];
    assert.deepEqual(await shown([...answered, result]), ['A draft.\n', ['— goes on (attempt 2) —']]);
    const restarted = [...answered, message('Lost.'), warning('The runtime died.'), start(3), result];
    assert.deepEqual(await shown(restarted), [
      'A draft.\nLost.\n',
      ['— goes on (attempt 2) —', '— starts again (attempt 3): The runtime died. —'],
    ]);
    const silent = [start(1), asked, start(2), message('Lost.'), warning('It died.'), start(3), result];
    assert.equal((await shown(silent))[0], 'Lost.\n"the result"\n');
  });
});
