import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { Reach } from '../addresses/reach.ts';
import { type Answer, post } from './webhooks.ts';

const reach = new Reach({ privateHosts: [{ host: '127.0.0.1' }] });
/** Node's diagnostics channel for a client that has received a response's head. */
const RESPONSE = 'http.client.response.finish';
/** Bounds a test that hangs. */
const HANG_MS = 20_000;

/** The outcome of a delivery to a server that runs `answer` on a request. `timeOver` lets the time limit of the delivery pass. */
async function deliverTo(answer: (socket: Socket, timeOver: () => void) => void): Promise<Answer> {
  const time = new AbortController();
  const timeOver = () => time.abort();
  const signal = AbortSignal.any([time.signal, AbortSignal.timeout(HANG_MS)]);
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
    socket.once('data', () => answer(socket, timeOver));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const { port } = server.address() as AddressInfo;
    return await post(new URL(`http://127.0.0.1:${port}/`), {}, '{}', { reach, tenant: 't' }, signal);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

test('a delivery ends on upgrades, resets, timeouts, and slow or endless responses', async () => {
  const refusal = 'the connection was closed before there was an answer';
  const upgrade = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n';
  assert.deepEqual(await deliverTo((socket) => socket.write(upgrade)), { error: refusal });
  assert.deepEqual(await deliverTo((socket) => socket.end()), { error: 'ECONNRESET' });
  assert.deepEqual(await deliverTo((_socket, timeOver) => timeOver()), { error: 'no answer in time' });
  const slow = (socket: Socket, timeOver: () => void) => {
    const onResponse = () => {
      unsubscribe(RESPONSE, onResponse);
      setImmediate(timeOver);
    };
    subscribe(RESPONSE, onResponse);
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun');
  };
  assert.deepEqual(await deliverTo(slow), { status: 200 });
  const endless = (socket: Socket) => {
    socket.write('HTTP/1.1 410 Gone\r\n\r\n');
    socket.on('drain', () => socket.write(Buffer.alloc(100_000))).write(Buffer.alloc(100_000));
  };
  assert.deepEqual(await deliverTo(endless), { status: 410 });
});
