import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import type { Versions } from '#scheduler/links/versions.ts';
import { GREEDY, generate, must, Oracle, startTestHost } from '../testing/host.ts';
import { GpuHostConnection } from './client.ts';
import { Link } from './link.ts';
import { FRAME, HELLO_VERSION, PROTOCOL_VERSIONS } from './wire.ts';

const THIS_RELEASE: Versions = PROTOCOL_VERSIONS;
/** A made-up next release, which also speaks the version of this one. */
const NEXT_RELEASE: Versions = { oldest: THIS_RELEASE.newest, newest: THIS_RELEASE.newest + 1 };
/** Versions of a later release that has none in common with this one. */
const TOO_NEW: Versions = { oldest: THIS_RELEASE.newest + 1, newest: THIS_RELEASE.newest + 2 };

/** The hello of a release that states no versions, byte for byte: a frame of version 1 and kind 1 with `{"processId":7}`. */
const SILENT_HELLO = Buffer.from(
  `0800000001000100060000000f000000${Buffer.from('{"processId":7}').toString('hex')}00`,
  'hex',
);

/** The version and the kind in the header of each frame of a stream of whole frames. */
function versionsOf(bytes: Buffer): { version: number; kind: number }[] {
  const frames = [];
  for (let at = 0; at < bytes.length; at += bytes.readUInt32LE(at) * 4)
    frames.push({ version: bytes.readUInt16LE(at + 6), kind: bytes.readUInt16LE(at + 4) });
  return frames;
}

/** The version that a runtime agrees on with the host at `address`, or the reason why the link was lost. */
async function agreedVersion(address: string, versions: Versions): Promise<number | string> {
  return new Promise((resolve) => {
    const events = {
      onHello: () => {
        resolve(link.version);
        link.close('the test has seen it');
      },
      onStats: () => undefined,
      onLost: resolve,
    };
    const link = new Link(address, events, versions);
  });
}

test('runtimes and GPU hosts of neighbouring releases work together, and both speak the newest version in common', async () => {
  const pairs = [
    [THIS_RELEASE, THIS_RELEASE, THIS_RELEASE.newest],
    [NEXT_RELEASE, THIS_RELEASE, THIS_RELEASE.newest],
    [THIS_RELEASE, NEXT_RELEASE, THIS_RELEASE.newest],
  ] as const;
  for (const [runtimeVersions, hostVersions, version] of pairs) {
    await using host = await startTestHost({ host: { versions: hostVersions } });
    const oracle = await Oracle.of(host.model);
    assert.equal(await agreedVersion(host.address, runtimeVersions), version);
    const connection = await GpuHostConnection.connect(host.address, { versions: runtimeVersions });
    try {
      const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
      const tokens = await generate(inferlet, inferlet.createQueue('tiny'), [1, 5], 12);
      assert.deepEqual(tokens, await oracle.greedy([1, 5], 12));
      assert.equal((await connection.stats()).models[0]?.name, 'tiny');
      const queue = inferlet.createQueue('tiny');
      const pages = must(inferlet.allocatePages(queue, 1));
      const none = new Uint32Array();
      const request = { token: 1, position: 0, pages, maxTokens: 2, sampler: GREEDY, stopTokens: none };
      const changes = { frequency: 1, presence: 0, biasTokens: none, biasValues: new Float32Array(), chosen: none };
      const run = inferlet.run(queue, { ...request, changes });
      const chunk = await run.next();
      assert.equal(must(chunk).tokens.length > 0, true);
      run.stop();
      inferlet.send(queue, { op: 'stop-queue' });
      await assert.rejects(generate(inferlet, queue, [1, 5], 2), /has stopped the queue/);
      await inferlet.close();
    } finally {
      connection.close();
    }
  }
});

test('without a common version, both sides name the side that is too old; they connect once they have a common version', async () => {
  for (const [runtimeVersions, hostVersions, oldSide] of [
    [THIS_RELEASE, TOO_NEW, 'runtime'],
    [TOO_NEW, THIS_RELEASE, 'GPU host'],
  ] as const) {
    const options = { host: { versions: hostVersions as Versions } };
    await using host = await startTestHost(options);
    let refusals = 0;
    const refused = Promise.withResolvers<string>();
    const connection = GpuHostConnection.open(host.address, {
      versions: runtimeVersions,
      onRefused: (why) => {
        refusals++;
        refused.resolve(why);
      },
      reconnectMs: { first: 1, longest: 1 },
    });
    try {
      assert.match(
        await refused.promise,
        new RegExp(`The ${oldSide} is too old .* Install a newer release of Pie on .* ${oldSide}\\.`),
      );
      assert.match(String(await agreedVersion(host.address, runtimeVersions)), /\(version\): The .* is too old/);
      assert.deepEqual([refusals, connection.connected], [1, false], 'the connection waits for `retry`');
      await host.stop();
      options.host.versions = runtimeVersions;
      await host.restart();
      const ready = new Promise<void>((resolve) => connection.onReady(resolve));
      connection.retry();
      await ready;
      const inferlet = connection.openInferlet({ id: 'a', maxPages: 8, arrival: 1 });
      must(await inferlet.synchronize(inferlet.createQueue('tiny')));
    } finally {
      connection.close();
    }
  }
});

test('a runtime that states no versions gets frames of version 1, the hello included', async () => {
  await using host = await startTestHost();
  const socket = connect(host.address);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.write(SILENT_HELLO);
  // A request for the host's state: an entry of three words with the id 5 and the flags 2, `STATS.modelsOnly`.
  const request = Buffer.alloc(20);
  for (const [i, word] of [5, (HELLO_VERSION << 16) | FRAME.statsRequest, 3, 5, 2].entries())
    request.writeUInt32LE(word, i * 4);
  socket.write(request);
  while (chunks.length === 0 || versionsOf(Buffer.concat(chunks)).length < 2) await once(socket, 'data');
  assert.deepEqual(versionsOf(Buffer.concat(chunks)), [
    { version: 1, kind: FRAME.hello },
    { version: 1, kind: FRAME.stats },
  ]);
  socket.destroy();
});

test('a GPU host that chooses no version gets frames of version 1', async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'pie-v-'));
  const address = path.join(directory, 's');
  const hello = JSON.stringify({ hostId: 'h', processId: 7, models: [], encoders: [] });
  const peers: Socket[] = [];
  const received: Buffer[] = [];
  const server = createServer((socket) => {
    peers.push(socket);
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    const bytes = Buffer.alloc(16 + Math.ceil(hello.length / 4) * 4);
    const words = [bytes.length / 4, (HELLO_VERSION << 16) | FRAME.hello, bytes.length / 4 - 2, hello.length];
    for (const [i, word] of words.entries()) bytes.writeUInt32LE(word, i * 4);
    bytes.write(hello, 16);
    socket.write(bytes);
  }).listen(address);
  const connection = await GpuHostConnection.connect(address);
  void connection.stats().catch(() => undefined);
  while (received.length === 0 || versionsOf(Buffer.concat(received)).length < 2)
    await once(peers[0] as Socket, 'data');
  assert.deepEqual(versionsOf(Buffer.concat(received)), [
    { version: 1, kind: FRAME.hello },
    { version: 1, kind: FRAME.statsRequest },
  ]);
  connection.close();
  await new Promise((resolve) => server.close(resolve));
  rmSync(directory, { recursive: true });
});

test('a host ends the connection of a runtime whose hello has no readable versions', async () => {
  await using host = await startTestHost();
  for (const versions of [{ oldest: 3, newest: 2 }, { oldest: -1, newest: 2 }, {}])
    assert.match(
      String(await agreedVersion(host.address, versions as Versions)),
      /\(malformed\): a hello without readable/,
    );
});
