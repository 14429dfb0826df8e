import { randomUUID } from 'node:crypto';
import { linkSync, lstatSync, renameSync, rmSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { socketAddress } from '#scheduler/links/security.ts';

/** Maximum attempts to listen at a path: other hosts may change the path between two attempts. */
const MAX_ATTEMPTS = 10;

/**
 * Listens on a unix socket's path or `host:port` (port 0 picks one); resolves with the address to connect to. Replaces the socket file of a
 * host that died without closing it; a file at which a process answers stays. Of several hosts that start at once, one gets the path.
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

/** Removes the socket file with this identity. If another host has replaced the file meanwhile, that host's file goes back to its path. */
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

/**
 * Identity of a socket file, which the file that replaces it does not have; null for any other file. The time is part of it, because a file system
 * may reuse the inode number of a removed file.
 */
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

/** False when no process listens at the path. Other errors mean that a process does: for example, its queue of connections is full. */
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
