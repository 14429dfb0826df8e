import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { HeartbeatTimes } from '../links/heartbeat.ts';
import type { Versions } from '../links/versions.ts';
import { eventually } from '../testing/fixture.ts';
import { LiveClient } from './client.ts';
import { encodeFrame, FrameReader, LIVE_VERSIONS } from './frames.ts';
import { LiveServer } from './server.ts';

const EPOCH = 1000;
const BOTH = LIVE_VERSIONS;
const OLD: Versions = { oldest: BOTH.oldest, newest: BOTH.newest - 1 };
const LATER: Versions = { oldest: BOTH.newest, newest: BOTH.newest + 1 };
const TOO_LATE: Versions = { oldest: BOTH.newest + 1, newest: BOTH.newest + 2 };

describe('live events between releases', () => {
  let directory: string;
  let sockets = 0;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'pie-live-v-'));
  });
  after(() => rm(directory, { recursive: true }));

  async function serve(versions: Versions | undefined) {
    const said: string[] = [];
    const server = new LiveServer({ ...(versions && { versions }), onRefused: (why) => said.push(why) });
    const socket = path.join(directory, `${++sockets}.sock`);
    await server.listen(socket);
    return { server, socket, said, [Symbol.asyncDispose]: () => server.close() };
  }

  function follow(socket: string, versions?: Versions, heartbeat: HeartbeatTimes = {}) {
    const said: string[] = [];
    const told: string[] = [];
    const client = new LiveClient(async () => ({ address: socket }), 'gateway', {
      ...(versions && { versions }),
      heartbeat,
      onRefused: (why) => said.push(why),
    });
    client.follow('r', 'a', {
      attached: (logged, epoch) => told.push(`logged ${logged} of ${epoch}`),
      events: (events) => told.push(...events.map(({ data }) => data)),
      lost: () => told.push('lost'),
    });
    return { said, told, [Symbol.dispose]: () => client.close() };
  }

  const begin = (server: LiveServer) => server.begin('a', EPOCH, () => ({ logged: 0, events: [] }));

  test('reach followers of neighbouring releases in both directions', async () => {
    for (const [gateway, runtime] of [
      [BOTH, BOTH],
      [OLD, BOTH],
      [BOTH, OLD],
      [LATER, BOTH],
      [BOTH, LATER],
    ] as const) {
      await using at = await serve(runtime);
      const attempt = begin(at.server);
      using follower = follow(at.socket, gateway);
      await eventually(() => follower.told.length === 1, 'the follower is attached');
      attempt.show(1, [{ event: 'message', data: 'one' }]);
      await eventually(() => follower.told.length === 2, 'the event comes');
      assert.deepEqual(follower.told, [`logged 0 of ${EPOCH}`, 'one']);
      assert.deepEqual([follower.said, at.said], [[], []]);
    }
  });

  test('are refused between releases without a common version; both sides say which one is too old', async () => {
    for (const [gateway, runtime, old] of [
      [BOTH, TOO_LATE, 'gateway'],
      [TOO_LATE, BOTH, 'runtime'],
    ] as const) {
      await using at = await serve(runtime);
      begin(at.server);
      using follower = follow(at.socket, gateway);
      await eventually(() => follower.said.length === 1, 'the gateway is refused');
      assert.match(follower.said[0] ?? '', new RegExp(`^The ${old} is too old .* on the machine of the ${old}\\.$`));
      assert.deepEqual(at.said, follower.said);
      assert.equal(at.server.followed, 0);
      assert.ok(!follower.told.includes(`logged 0 of ${EPOCH}`));
    }
  });

  test('reach a gateway that states no versions, in the frames that it knows', async () => {
    await using at = await serve(undefined);
    begin(at.server);
    const gateway = connect(at.socket);
    const fields = fieldsOf(gateway);
    gateway.write(encodeFrame(['submitter', 'gateway', 'follow', 'a']));
    await eventually(() => fields.length === 8, 'the server answers');
    assert.deepEqual(fields, ['', '0', 'attached', '', 'a', '0', 'attached', String(EPOCH)]);
    gateway.destroy();
    await using late = await serve(TOO_LATE);
    const refused = connect(late.socket);
    fieldsOf(refused);
    refused.write(encodeFrame(['submitter', 'gateway', 'follow', 'a']));
    await once(refused, 'close');
    assert.equal(late.server.followed, 0);
    assert.equal(late.said.length, 1);
  });

  test('are requested from a runtime that states no version, in frames that it knows', async () => {
    const socket = path.join(directory, 'silent.sock');
    const asked: string[] = [];
    const runtime = createServer((peer) => {
      const reader = new FrameReader();
      peer.on('data', (chunk: Buffer) =>
        reader.push(chunk, (fields) => {
          asked.push(...fields);
          // The peer takes the versions for an invocation, and answers `submitter`.
          if (fields.includes('submitter')) peer.write(encodeFrame(['', '0', 'attached', '']));
          if (fields.includes('follow')) peer.write(encodeFrame(['a', '0', 'attached', String(EPOCH)]));
        }),
      );
    }).listen(socket);
    const follower = follow(socket);
    await eventually(() => follower.told.length === 1, 'the follower is attached');
    assert.deepEqual(asked.slice(2), ['submitter', 'gateway', 'follow', 'a']);
    follower[Symbol.dispose]();
    await new Promise((resolve) => runtime.close(resolve));
  });

  test('are read from the log when a runtime at a network address has fallen silent', async () => {
    let isSilent = false;
    const peers: Socket[] = [];
    const asked: string[] = [];
    const runtime = createServer((peer) => {
      peers.push(peer);
      const reader = new FrameReader();
      peer.on('data', (chunk: Buffer) =>
        reader.push(chunk, (fields) => {
          asked.push(...fields);
          if (isSilent) return;
          if (fields.includes('versions')) peer.write(encodeFrame(['', String(BOTH.newest), 'version', '']));
          if (fields.includes('alive')) peer.write(encodeFrame(['', '0', 'alive', '']));
          if (fields.includes('follow')) peer.write(encodeFrame(['a', '0', 'attached', String(EPOCH)]));
        }),
      );
    }).listen(0, '127.0.0.1');
    await once(runtime, 'listening');
    const { port } = runtime.address() as AddressInfo;
    const follower = follow(`127.0.0.1:${port}`, undefined, { everyMs: 5, silentIntervals: 40 });
    await eventually(
      () => asked.filter((field) => field === 'alive').length > 45,
      'a runtime with nothing to say stays',
    );
    assert.deepEqual(follower.told, [`logged 0 of ${EPOCH}`]);
    isSilent = true;
    await eventually(() => follower.told.includes('lost'), 'a silent runtime is left');
    follower[Symbol.dispose]();
    for (const peer of peers) peer.destroy();
    await new Promise((resolve) => runtime.close(resolve));
  });

  test('are shown to a gateway that asks for a sign of life', async () => {
    await using at = await serve(undefined);
    begin(at.server);
    const gateway = connect(at.socket);
    const fields = fieldsOf(gateway);
    gateway.write(encodeFrame(['versions', `${BOTH.newest} ${BOTH.newest}`, 'alive', '']));
    await eventually(() => fields.length === 8, 'the server answers');
    assert.deepEqual(fields, ['', String(BOTH.newest), 'version', '', '', '0', 'alive', '']);
    assert.equal(at.server.followed, 0);
    gateway.destroy();
  });

  test('are not shown to a gateway whose versions cannot be read', async () => {
    await using at = await serve(undefined);
    for (const versions of ['', '2', '2 1', 'one two', '-1 2']) {
      const gateway = connect(at.socket);
      const fields = fieldsOf(gateway);
      gateway.write(encodeFrame(['versions', versions, 'follow', 'a']));
      await once(gateway, 'close');
      assert.deepEqual(fields, ['', '0', 'refused', 'The gateway’s versions cannot be read.'], versions);
      assert.equal(at.server.followed, 0);
    }
  });
});

/** Collects the fields of all frames as they arrive. */
function fieldsOf(socket: Socket): string[] {
  const fields: string[] = [];
  const reader = new FrameReader();
  socket.on('data', (chunk: Buffer) => reader.push(chunk, (more) => fields.push(...more)));
  return fields;
}
