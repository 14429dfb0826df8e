import net from 'node:net';

/** A Redis whose answers come late: a TCP port in front of a server's unix socket. */
export class SlowRedis {
  readonly url: string;
  readonly #server: net.Server;
  readonly #sockets: Set<net.Socket>;

  private constructor(server: net.Server, sockets: Set<net.Socket>) {
    this.#server = server;
    this.#sockets = sockets;
    this.url = `redis://127.0.0.1:${(server.address() as net.AddressInfo).port}`;
  }

  /** @param delayMs time that each piece of an answer waits; the order of pieces stays */
  static async start(socketPath: string, delayMs: number): Promise<SlowRedis> {
    const sockets = new Set<net.Socket>();
    const server = net.createServer((client) => {
      const redis = net.connect(socketPath);
      client.pipe(redis);
      redis.on('data', (piece) => setTimeout(() => client.write(piece), delayMs));
      for (const [socket, other] of [[client, redis] as const, [redis, client] as const]) {
        sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          sockets.delete(socket);
          other.destroy();
        });
      }
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new SlowRedis(server, sockets);
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
