import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { listen } from './gpu-host.ts';

let directory = '';
before(() => {
  directory = mkdtempSync(join(tmpdir(), 'pie-l-'));
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** A server that names itself to each connection. Some connections only probe it, and close at once. */
const createNamedServer = (name: string): Server =>
  createServer((socket) => socket.on('error', () => undefined).end(name)).unref();
const close = (server: Server) => new Promise((resolve) => server.close(resolve));

/** Leaves the file of a socket at which no process listens, as after a kill. */
async function leaveDead(path: string): Promise<void> {
  const server = createNamedServer('dead');
  await listen(server, `${path}-first`);
  renameSync(`${path}-first`, path);
  await close(server);
}

async function answerAt(path: string): Promise<string> {
  const socket = connect(path).setEncoding('utf8');
  const [text] = await once(socket, 'data');
  return text;
}

test('of many hosts that start at once at the path of a dead host, exactly one gets the path and keeps it', async () => {
  for (let round = 0; round < 20; round++) {
    const path = join(directory, `many-${round}`);
    await leaveDead(path);
    const servers = Array.from({ length: 8 }, (_, i) => createNamedServer(`host ${i}`));
    const outcomes = await Promise.allSettled(servers.map((server) => listen(server, path)));
    const winners = outcomes.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []));
    assert.equal(winners.length, 1, `hosts ${winners} have the path`);
    for (const outcome of outcomes) if (outcome.status === 'rejected') assert.equal(outcome.reason.code, 'EADDRINUSE');
    assert.equal(await answerAt(path), `host ${winners[0]}`);
    assert.deepEqual(
      readdirSync(directory).filter((name) => name.startsWith(`many-${round}`)),
      [`many-${round}`],
    );
    await close(servers[winners[0]!]!);
  }
});

test('a host does not replace a file that is no socket', async () => {
  const path = join(directory, 'text');
  writeFileSync(path, 'a text');
  await assert.rejects(listen(createNamedServer('host'), path), { code: 'EADDRINUSE' });
  assert.equal(readFileSync(path, 'utf8'), 'a text');
});
