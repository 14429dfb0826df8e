import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import net, { type AddressInfo, type Socket } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { EXIT, Failure } from '../failure.ts';
import { withSnapshot } from './snapshot.ts';

/** Takes a snapshot from a server that calls `answer` when the first command arrives. Returns the failure. */
async function failureOf(answer: (socket: Socket) => void): Promise<Failure> {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'pie-snapshot-'));
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined).once('data', () => answer(socket));
  });
  server.listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { signal } = new AbortController();
    const failure = await withSnapshot({ kind: 'external', url }, directory, signal, () =>
      Promise.reject(new Error('no snapshot can be complete')),
    ).catch((error: unknown) => error);
    assert.ok(failure instanceof Failure);
    assert.deepEqual(readdirSync(directory), []);
    return failure;
  } finally {
    server.close();
    rmSync(directory, { recursive: true });
  }
}

test('a failure names a broken connection as the cause, and its advice does not mention permissions', async () => {
  for (const [answer, expectedWhy] of [
    [(socket: Socket) => socket.end(), /ended the connection/],
    [(socket: Socket) => socket.resetAndDestroy(), /ECONNRESET/],
  ] as const) {
    const { message, exitCode, why = '', advice = '' } = await failureOf(answer);
    assert.match(message, /connection to Redis broke/);
    assert.match(why, expectedWhy);
    assert.match(advice, /Check that Redis runs/);
    assert.doesNotMatch(advice, /permission/);
    assert.equal(exitCode, EXIT.unreachable);
  }
});

test('a failure names the address of a server that is not a Redis, and the settings that contain the address', async () => {
  // The snapshot accepts lines of at most 4096 bytes.
  const { message, advice = '' } = await failureOf((socket) => socket.write('x'.repeat(5000)));
  assert.match(message, /^The answer of redis:\/\/127\.0\.0\.1:\d+.* is not that of a Redis\.$/);
  assert.match(advice, /REDIS_URL/);
});

test('a failure shows the refusal of Redis, and its advice names the permissions', async () => {
  const { why, advice = '' } = await failureOf((socket) => socket.write('-NOPERM no\r\n'));
  assert.equal(why, 'NOPERM no');
  assert.match(advice, /permissions SYNC and REPLCONF/);
});
