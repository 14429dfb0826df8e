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
import { EVENT_FIELDS, encodeFrame, FrameReader, LIVE_VERSIONS } from './live.ts';
import { LiveServer } from './server.ts';

const EPOCH = 1000;
/** The versions that this release speaks, and those of a made-up next release. */
const PRESENT = LIVE_VERSIONS;
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
    const calls: string[] = [];
    const client = new LiveClient(async () => ({ address: socket }), 'gateway', {
      ...(versions && { versions }),
      heartbeat,
      onRefused: (why) => refusals.push(why),
    });
    client.follow('r', 'a', {
      attached: (logged, epoch) => calls.push(`logged ${logged} of ${epoch}`),
      events: (events) => calls.push(...events.map(({ data }) => data)),
      lost: () => calls.push('lost'),
    });
    return { refusals, calls, [Symbol.dispose]: () => client.close() };
  }

  const begin = (server: LiveServer) => server.begin('a', EPOCH, () => ({ logged: 0, events: [] }));

  test('a gateway follows a runtime of its own or of the next release', async () => {
    for (const [gateway, runtime] of [
      [PRESENT, PRESENT],
      [LATER, PRESENT],
      [PRESENT, LATER],
      [LATER, LATER],
    ] as const) {
      await using at = await serve(runtime);
      const attempt = begin(at.server);
      using follower = follow(at.socket, gateway);
      await eventually(() => follower.calls.length === 1, 'the follower is attached');
      attempt.show(1, [{ event: 'message', data: 'one' }]);
      await eventually(() => follower.calls.length === 2, 'the event comes');
      assert.deepEqual(follower.calls, [`logged 0 of ${EPOCH}`, 'one']);
      assert.deepEqual([follower.refusals, at.refusals], [[], []]);
    }
  });

  test('a gateway and a runtime without a common version refuse each other, and both name the side that is too old', async () => {
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
      assert.ok(!follower.calls.includes(`logged 0 of ${EPOCH}`));
    }
  });

  test('a runtime refuses a gateway that states no versions', async () => {
    await using at = await serve(undefined);
    begin(at.server);
    const gateway = connect(at.socket);
    const fields = fieldsOf(gateway);
    gateway.write(encodeFrame(['submitter', 'gateway', 'follow', 'a']));
    await once(gateway, 'close');
    assert.deepEqual(fields, ['', '0', 'refused', 'The gateway’s versions cannot be read.']);
    assert.equal(at.server.followed, 0);
  });

  test('a follower loses a runtime at a network address once this runtime stops answering requests for signs of life', async () => {
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
    // If the answers did not count, the follower would have lost the runtime before so many requests.
    await eventually(
      () => asked.filter((field) => field === 'alive').length > SILENT_INTERVALS + 5,
      'the runtime answers more requests than it is allowed to leave unanswered',
    );
    assert.deepEqual(follower.calls, [`logged 0 of ${EPOCH}`]);
    isSilent = true;
    asked.length = 0;
    await eventually(() => follower.calls.includes('lost'), 'the follower loses the silent runtime');
    const unanswered = asked.filter((field) => field === 'alive').length;
    follower[Symbol.dispose]();
    for (const peer of peers) peer.destroy();
    await new Promise((resolve) => runtime.close(resolve));
    // Half of the allowed number: the last requests may not have arrived before the follower closed the connection.
    assert.ok(unanswered > SILENT_INTERVALS / 2, `lost after ${unanswered} unanswered requests`);
  });

  test("a runtime answers a gateway's request for a sign of life", async () => {
    await using at = await serve(undefined);
    begin(at.server);
    const gateway = connect(at.socket);
    const fields = fieldsOf(gateway);
    gateway.write(encodeFrame(['versions', `${PRESENT.newest} ${PRESENT.newest}`, 'alive', '']));
    await eventually(() => fields.length === 2 * EVENT_FIELDS, 'the server answers');
    assert.deepEqual(fields, ['', String(PRESENT.newest), 'version', '', '', '0', 'alive', '']);
    assert.equal(at.server.followed, 0);
    gateway.destroy();
  });

  test('a runtime refuses a gateway whose versions cannot be read', async () => {
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
