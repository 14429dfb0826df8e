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
const PRESENT = LIVE_VERSIONS;
const EARLIER: Versions = { oldest: PRESENT.oldest, newest: PRESENT.newest - 1 };
const LATER: Versions = { oldest: PRESENT.newest, newest: PRESENT.newest + 1 };
/** Has no version in common with this release. */
const TOO_LATE: Versions = { oldest: PRESENT.newest + 1, newest: PRESENT.newest + 2 };

describe('live events between releases', () => {
  let directory: string;
  let sockets = 0;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'pie-live-v-'));
  });
  after(() => rm(directory, { recursive: true }));

  async function serve(versions: Versions | undefined) {
    const refusals: string[] = [];
    const server = new LiveServer({ ...(versions && { versions }), onRefused: (why) => refusals.push(why) });
    const socket = path.join(directory, `${++sockets}.sock`);
    await server.listen(socket);
    return { server, socket, refusals, [Symbol.asyncDispose]: () => server.close() };
  }

  function follow(socket: string, versions?: Versions, heartbeat: HeartbeatTimes = {}) {
    const refusals: string[] = [];
    const told: string[] = [];
    const client = new LiveClient(async () => ({ address: socket }), 'gateway', {
      ...(versions && { versions }),
      heartbeat,
      onRefused: (why) => refusals.push(why),
    });
    client.follow('r', 'a', {
      attached: (logged, epoch) => told.push(`logged ${logged} of ${epoch}`),
      events: (events) => told.push(...events.map(({ data }) => data)),
      lost: () => told.push('lost'),
    });
    return { refusals, told, [Symbol.dispose]: () => client.close() };
  }

  const begin = (server: LiveServer) => server.begin('a', EPOCH, () => ({ logged: 0, events: [] }));

  test('a gateway follows a runtime of the release before or after its own', async () => {
    for (const [gateway, runtime] of [
      [PRESENT, PRESENT],
      [EARLIER, PRESENT],
      [PRESENT, EARLIER],
      [LATER, PRESENT],
      [PRESENT, LATER],
    ] as const) {
      await using at = await serve(runtime);
      const attempt = begin(at.server);
      using follower = follow(at.socket, gateway);
      await eventually(() => follower.told.length === 1, 'the follower is attached');
      attempt.show(1, [{ event: 'message', data: 'one' }]);
      await eventually(() => follower.told.length === 2, 'the event comes');
      assert.deepEqual(follower.told, [`logged 0 of ${EPOCH}`, 'one']);
      assert.deepEqual([follower.refusals, at.refusals], [[], []]);
    }
  });

  test('a gateway and a runtime without a common version refuse each other; both name the one that is too old', async () => {
    for (const [gateway, runtime, old] of [
      [PRESENT, TOO_LATE, 'gateway'],
      [TOO_LATE, PRESENT, 'runtime'],
    ] as const) {
      await using at = await serve(runtime);
      begin(at.server);
      using follower = follow(at.socket, gateway);
      await eventually(() => follower.refusals.length === 1, 'the gateway is refused');
      const [refusal = ''] = follower.refusals;
      assert.match(refusal, new RegExp(`^The ${old} is too old .* on the machine of the ${old}\\.$`));
      assert.deepEqual(at.refusals, follower.refusals);
      assert.equal(at.server.followed, 0);
      assert.ok(!follower.told.includes(`logged 0 of ${EPOCH}`));
    }
  });

  test('a gateway that states no versions is served in the frames that it knows, or refused', async () => {
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
    assert.equal(late.refusals.length, 1);
  });

  test('a gateway follows a runtime that states no version, in frames that this runtime knows', async () => {
    const socket = path.join(directory, 'silent.sock');
    const asked: string[] = [];
    const runtime = createServer((peer) => {
      const reader = new FrameReader();
      peer.on('data', (chunk: Buffer) =>
        reader.push(chunk, (fields) => {
          asked.push(...fields);
          // This runtime does not answer `versions`, which it takes for a request to follow an invocation.
          if (fields.includes('submitter')) peer.write(encodeFrame(['', '0', 'attached', '']));
          if (fields.includes('follow')) peer.write(encodeFrame(['a', '0', 'attached', String(EPOCH)]));
        }),
      );
    }).listen(socket);
    const follower = follow(socket);
    await eventually(() => follower.told.length === 1, 'the follower is attached');
    const afterVersions = asked.slice(2);
    assert.deepEqual(afterVersions, ['submitter', 'gateway', 'follow', 'a']);
    follower[Symbol.dispose]();
    await new Promise((resolve) => runtime.close(resolve));
  });

  test('a follower loses a runtime at a network address that has fallen silent, and keeps one that answers', async () => {
    const SILENT_INTERVALS = 40;
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
          if (fields.includes('versions')) peer.write(encodeFrame(['', String(PRESENT.newest), 'version', '']));
          if (fields.includes('alive')) peer.write(encodeFrame(['', '0', 'alive', '']));
          if (fields.includes('follow')) peer.write(encodeFrame(['a', '0', 'attached', String(EPOCH)]));
        }),
      );
    }).listen(0, '127.0.0.1');
    await once(runtime, 'listening');
    const { port } = runtime.address() as AddressInfo;
    const follower = follow(`127.0.0.1:${port}`, undefined, { everyMs: 5, silentIntervals: SILENT_INTERVALS });
    // Without the answers, the follower would have lost the runtime by then.
    await eventually(
      () => asked.filter((field) => field === 'alive').length > SILENT_INTERVALS + 5,
      'the runtime answers more requests than it may leave unanswered',
    );
    assert.deepEqual(follower.told, [`logged 0 of ${EPOCH}`]);
    isSilent = true;
    asked.length = 0;
    await eventually(() => follower.told.includes('lost'), 'the follower loses the silent runtime');
    const unanswered = asked.filter((field) => field === 'alive').length;
    follower[Symbol.dispose]();
    for (const peer of peers) peer.destroy();
    await new Promise((resolve) => runtime.close(resolve));
    assert.ok(unanswered > SILENT_INTERVALS / 2, `lost after ${unanswered} unanswered requests`);
  });

  test('a runtime answers a gateway that asks for a sign of life', async () => {
    await using at = await serve(undefined);
    begin(at.server);
    const gateway = connect(at.socket);
    const fields = fieldsOf(gateway);
    gateway.write(encodeFrame(['versions', `${PRESENT.newest} ${PRESENT.newest}`, 'alive', '']));
    await eventually(() => fields.length === 8, 'the server answers');
    assert.deepEqual(fields, ['', String(PRESENT.newest), 'version', '', '', '0', 'alive', '']);
    assert.equal(at.server.followed, 0);
    gateway.destroy();
  });

  test('a gateway whose versions cannot be read is refused', async () => {
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

/** Collects the fields of all frames as they arrive; an event or a notice of a runtime has four. */
function fieldsOf(socket: Socket): string[] {
  const fields: string[] = [];
  const reader = new FrameReader();
  socket.on('data', (chunk: Buffer) => reader.push(chunk, (more) => fields.push(...more)));
  return fields;
}
