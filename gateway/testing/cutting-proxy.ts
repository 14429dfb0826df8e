import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * Starts a proxy to the gateway that cuts each connection after `everyBytes()` bytes of answers; an infinite number leaves the cutting to `cut()`.
 * Port 0 lets the operating system choose.
 */
export async function startCuttingProxy(target: URL, everyBytes: () => number, port = 0) {
  const sockets = new Set<Socket>();
  let cuts = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    }
    let remainingBytes = everyBytes();
    client.pipe(upstream);
    upstream.on('data', (chunk: Buffer) => {
      client.write(chunk.subarray(0, remainingBytes));
      remainingBytes -= chunk.byteLength;
      if (remainingBytes > 0) return;
      cuts += 1;
      client.destroySoon();
      upstream.destroy();
    });
    upstream.on('close', () => client.destroySoon());
    client.on('close', () => upstream.destroy());
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cuts: () => cuts,
    /** Cuts every connection now. */
    cut() {
      cuts += 1;
      for (const socket of sockets) socket.destroy();
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      if (!server.listening) return;
      server.close();
      await once(server, 'close');
    },
  };
}
