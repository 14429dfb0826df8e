import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';

/** Two connected unix sockets, one of them for a child's standard input: from the pipe that Node would make for it, a parent cannot read. */
export async function socketPair(): Promise<[net.Socket, net.Socket]> {
  // Only this user can enter the directory, so no other user can connect meanwhile.
  const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-pair-'));
  const server = net.createServer({ pauseOnConnect: true });
  try {
    server.listen(path.join(directory, 's'));
    await once(server, 'listening');
    const accepted = once(server, 'connection') as Promise<[net.Socket]>;
    const ours = net.connect(path.join(directory, 's'));
    const [[theirs]] = await Promise.all([accepted, once(ours, 'connect')]);
    return [ours, theirs];
  } finally {
    server.close();
    rmSync(directory, { recursive: true, force: true });
  }
}
