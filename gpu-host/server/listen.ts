import { rmSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { socketAddress } from '#scheduler/links/socket-address.ts';

/**
 * Listens on a unix socket's path or `host:port` (port 0 picks one); resolves with the address to connect to. Replaces the socket file of a
 * host that died without closing it, but not one at which a process answers.
 * @throws Error when the address is taken or cannot be used.
 */
export async function listen(server: Server, address: string): Promise<string> {
  const where = socketAddress(address);
  try {
    await listenOnce(server, where);
  } catch (error) {
    if (!('path' in where) || (error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    if (await answers(where.path)) throw error;
    rmSync(where.path, { force: true });
    await listenOnce(server, where);
  }
  const bound = server.address();
  if (bound === null || typeof bound === 'string') return address;
  return bound.family === 'IPv6' ? `[${bound.address}]:${bound.port}` : `${bound.address}:${bound.port}`;
}

function listenOnce(server: Server, where: { path: string } | { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(where, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => resolve(false));
  });
}
