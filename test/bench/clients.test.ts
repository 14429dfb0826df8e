import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startTogether } from './clients.ts';

const frame = (event: string, data: object) => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;

/** A fake platform with one function. Its invocations send a message, wait for one, and return their input. The input 0 fails at once. */
function platform() {
  const waiting = new Map<string, () => void>();
  const fetch = async (route: string, init: RequestInit = {}): Promise<Response> => {
    const [, id] = /invocations\/(.*)\/messages$/.exec(route) ?? [];
    if (id !== undefined) {
      waiting.get(id)?.();
      return new Response('{}');
    }
    const input = String(init.body);
    const body = async function* () {
      yield frame('start', { invocation: input });
      if (input === '0') {
        yield frame('error', { code: 'inferlet-error' });
        return;
      }
      const messageReceived = new Promise<void>((resolve) => waiting.set(input, resolve));
      yield frame('message', { text: 'ready' });
      await messageReceived;
      yield frame('result', { output: Number(input) });
    };
    return new Response(ReadableStream.from(body()).pipeThrough(new TextEncoderStream()));
  };
  return { fetch };
}

describe('startTogether', () => {
  it('resumes all invocations once each has sent its message, and returns their outputs in order', async () => {
    let calls = 0;
    assert.deepEqual(await startTogether(platform(), 'f', [3, 1, 2], async () => void calls++), [3, 1, 2]);
    assert.equal(calls, 1);
  });

  it('fails when an invocation fails before all are ready, although the others still wait', {
    timeout: 20_000,
  }, async () => {
    const started = startTogether(platform(), 'f', [1, 0, 2], async () => assert.fail('not all are ready'));
    await assert.rejects(started, /the invocation failed/);
  });
});
