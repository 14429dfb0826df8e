import { randomUUID } from 'node:crypto';
import { linkSync, lstatSync, renameSync, rmSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { socketAddress } from '#scheduler/links/socket-address.ts';

/** Maximum attempts to listen at a path: other hosts may change the path between two attempts. */
const MAX_ATTEMPTS = 10;

/**
 * Listens on a unix socket's path or `host:port` (port 0 picks one); resolves with the address to connect to. Replaces the socket file of a
 * host that died without closing it, but not one at which a process answers. Of several hosts that start at once, one gets the path.
 * @throws Error when the address is taken or cannot be used.
 */
export async function listen(server: Server, address: string): Promise<string> {
  const target = socketAddress(address);
  for (let attempt = 1; ; attempt++) {
    try {
      await listenOnce(server, target);
      break;
    } catch (error) {
      if (!('path' in target) || (error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      const foundIdentity = identityOf(target.path);
      if (attempt === MAX_ATTEMPTS || (await answers(target.path))) throw error;
      if (foundIdentity !== null) removeDead(target.path, foundIdentity);
    }
  }
  const bound = server.address();
  if (bound === null || typeof bound === 'string') return address;
  return bound.family === 'IPv6' ? `[${bound.address}]:${bound.port}` : `${bound.address}:${bound.port}`;
}

/** Removes the socket file with this identity. Another host may replace the file at any time; its file stays. */
function removeDead(path: string, identity: string): void {
  const asidePath = `${path}.${randomUUID().slice(0, 8)}`;
  try {
    renameSync(path, asidePath);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  try {
    if (identityOf(asidePath) !== identity) linkSync(asidePath, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(asidePath, { force: true });
  }
}

/** Tells a socket file from one that replaced it; null for any other file. A file system may reuse the inode number of a removed file. */
function identityOf(path: string): string | null {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat?.isSocket() ? `${stat.dev} ${stat.ino} ${stat.mtimeNs}` : null;
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

/** False when no process listens at the path. A host whose queue of connections is full refuses in other ways. */
function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT'));
  });
}
