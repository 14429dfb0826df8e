import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { receive, receiveCompletion } from './streams.ts';

const HEARTBEAT = ': heartbeat\n\n';

describe('streams of benchmarks', () => {
  it('skip the heartbeats of a quiet stream', async () => {
    const frames = [
      HEARTBEAT,
      'event: start\ndata: {"invocation":"a"}\n\n',
      HEARTBEAT,
      'event: message\ndata: {"text":"Tim"}\n\n',
      HEARTBEAT,
      'event: result\ndata: {"output":{"text":"Tim","tokens":[5]}}\n\n',
    ];
    const parse = await receive({ fetch: async () => new Response(frames.join('')) }, {});
    const { text, tokens } = parse();
    assert.deepEqual({ text, tokens }, { text: 'Tim', tokens: 1 });
  });

  it('skip the heartbeats of a completion, and refuse a completion that broke off', async () => {
    const piece = 'data: {"choices":[{"text":"Tim","token_ids":[5],"finish_reason":null}]}\n\n';
    const server = createServer((request, response) =>
      response.end(`${HEARTBEAT}${piece}${request.url === '/whole' ? `${HEARTBEAT}data: [DONE]\n\n` : ''}`),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      const parse = await receiveCompletion(`${url}/whole`, 'key', {});
      const { text, tokens, gapsMs } = parse();
      assert.deepEqual({ text, tokens, gapsMs }, { text: 'Tim', tokens: 1, gapsMs: [] });
      assert.throws(await receiveCompletion(`${url}/part`, 'key', {}), /broke off/);
    } finally {
      server.close();
    }
  });
});
