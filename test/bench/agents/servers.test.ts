import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it } from 'node:test';
import { ChildServer } from './child-server.ts';
import { answerOf } from './task.ts';

/** Collects the bytes of a socket until its other end is done. The socket can still send after that. */
async function wholeOf(socket: net.Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(socket, 'end');
  return Buffer.concat(chunks);
}

describe('servers of the agents', () => {
  it('the tool answers a call, directly and over the delaying network', async () => {
    await using tool = await ChildServer.start('tool-process.ts', []);
    await using network = await ChildServer.start('delay-process.ts', [`${tool.port}:0`, `${tool.port}:10`]);
    for (const port of [tool.port, ...network.ports]) {
      const answer = await fetch(`http://127.0.0.1:${port}/5`, { method: 'POST', body: '{"step": 3}' });
      assert.equal(await answer.text(), answerOf(3));
    }
  });

  it('the network passes all bytes on in order, and the end of the stream, in both directions', async () => {
    const sent = randomBytes(1 << 20);
    const received = Promise.withResolvers<Buffer>();
    // The server answers only after the end of its input.
    const server = net.createServer({ allowHalfOpen: true }, (socket) => {
      void wholeOf(socket).then((bytes) => {
        received.resolve(bytes);
        socket.end(bytes.toReversed());
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const { port } = server.address() as net.AddressInfo;
      await using network = await ChildServer.start('delay-process.ts', [`${port}:4`]);
      const socket = net.connect({ port: network.port, host: '127.0.0.1', allowHalfOpen: true });
      socket.end(sent);
      const answer = await wholeOf(socket);
      assert.ok(sent.equals(await received.promise));
      assert.ok(sent.equals(answer.toReversed()));
    } finally {
      server.close();
    }
  });

  it('a start fails when the process ends before it listens', async () => {
    await assert.rejects(ChildServer.start('no-process.ts', []), /ended with/);
  });
});
