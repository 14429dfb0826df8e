import assert from 'node:assert/strict';
import { renameSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { test } from 'node:test';
import { generate, startTestHost, tagOf } from '../testing/host.ts';
import { GpuHostConnection } from './client.ts';
import { GpuHostConnections } from './connections.ts';
import { FrameWriter } from './frames.ts';
import { FRAME, type FrameKind } from './wire.ts';

/** Longer than any test: a test that waits for it fails at the runner's limit. */
const FOR_EVER_MS = 2 ** 30;

/** Resolves with the next change. */
const changeOf = (hosts: GpuHostConnections): Promise<void> =>
  new Promise((resolve) => {
    const stop = hosts.onChange(() => {
      stop();
      resolve();
    });
  });

test('a host that does not answer delays no other host, and serves calls once it says hello', async (t) => {
  await using host = await startTestHost();
  const { address } = host;
  const unusedAddress = `${address}-2`;
  const absent = new GpuHostConnections([
    { name: 'b', address: unusedAddress },
    { name: 'c', address: `${address}-3` },
  ]);
  await assert.rejects(absent.ready({ deadlineMs: 50 }), /no GPU host answered at .*-2, .*-3 within 50 ms/);
  absent.set([]);
  await assert.rejects(absent.ready({ deadlineMs: 50 }), /no GPU host was registered within 50 ms: start a machine/);
  const hosts = new GpuHostConnections([{ name: 'a', address: unusedAddress, reconnectMs: { first: 5, longest: 5 } }]);
  t.after(() => hosts.close());
  let changes = 0;
  hosts.onChange(() => changes++);
  const ready = hosts.ready({ othersMs: 20 });
  // A host that is registered during the wait ends the wait.
  hosts.set([
    { name: 'b', address },
    { name: 'a', address: unusedAddress },
  ]);
  await ready;
  const [hostA, hostB] = hosts.list as [GpuHostConnection, GpuHostConnection];
  assert.deepEqual([hostA.connected, hostA.models.length, hostB.connected], [false, 0, true]);
  const dead = hostA.openInferlet({ id: 'dead', maxPages: 16, arrival: 1 });
  assert.equal(tagOf(await dead.synchronize(dead.createQueue('tiny'))), 'unavailable');
  const hello = new Promise<void>((resolve) => hostA.onReady(resolve));
  // Now the test host answers at the address of a.
  renameSync(address, unusedAddress);
  await hello;
  const fresh = hostA.openInferlet({ id: 'fresh', maxPages: 16, arrival: 2 });
  assert.equal((await generate(fresh, fresh.createQueue('tiny'), [1, 5], 4)).length, 4);
  const before = changes;
  hosts.set([{ name: 'a', address: unusedAddress }]);
  assert.deepEqual(
    [hosts.list, changes],
    [[hostA], before + 1],
    'the host that `set` does not name is removed, and the other connection stays',
  );
  assert.equal(tagOf(await fresh.synchronize(fresh.createQueue('tiny'))), 'ok');
  const removed = hostB.openInferlet({ id: 'removed', maxPages: 16, arrival: 3 });
  assert.equal(tagOf(await removed.synchronize(removed.createQueue('tiny'))), 'unavailable');
  rmSync(unusedAddress);
});

test('a host with another name is refused, and the next `set` tries the address again', async (t) => {
  await using east = await startTestHost({ host: { name: 'east' } });
  await using west = await startTestHost({ host: { name: 'west' } });
  const refusals: string[] = [];
  const wanted = { name: 'west', address: east.address, reconnectMs: { first: 1, longest: 1 } };
  const hosts = new GpuHostConnections([wanted], { onRefused: (why) => refusals.push(why) });
  t.after(() => hosts.close());
  await changeOf(hosts);
  assert.match(
    refusals.join(),
    new RegExp(`^The GPU host at ${east.address} is east, not west\\. Give west an address`),
  );
  const [connection] = hosts.list as [GpuHostConnection];
  assert.deepEqual([connection.connected, connection.models], [false, []]);
  const again = changeOf(hosts);
  hosts.set([wanted]);
  await again;
  assert.equal(refusals.length, 2, 'the address was tried again once');
  hosts.set([{ ...wanted, alive: false }]);
  renameSync(west.address, east.address);
  const reached = changeOf(hosts);
  hosts.set([wanted]);
  await reached;
  assert.deepEqual([connection.connected, hosts.list, refusals.length], [true, [connection], 2]);
});

test('the connection to a host that `set` stops naming stays for `keptMs`, or until it is lost', async (t) => {
  await using host = await startTestHost();
  const wanted = [{ name: 'a', address: host.address }];
  const hosts = new GpuHostConnections(wanted, { keptMs: 100 });
  t.after(() => hosts.close());
  await hosts.ready();
  const [connection] = hosts.list;
  for (const [listed, nowMs] of [
    [[], 1000],
    [[], 1099],
    [wanted, 1100],
    [[], 1200],
    [[], 1299],
  ] as const) {
    hosts.set(listed, nowMs);
    assert.deepEqual([hosts.list, connection?.connected], [[connection], true], `at ${nowMs} ms`);
  }
  hosts.set([], 1300);
  assert.deepEqual(hosts.list, []);
  hosts.set(wanted, 2000);
  await hosts.ready();
  hosts.set([], 2000);
  const lost = changeOf(hosts);
  await host.stop();
  await lost;
  assert.deepEqual(hosts.list, []);
});

test('`ready` does not wait for a host that is dead, or whose address another host has taken', async (t) => {
  await using east = await startTestHost({ host: { name: 'east' } });
  const hosts = new GpuHostConnections([
    { name: 'east', address: east.address },
    { name: 'taken', address: east.address },
    { name: 'dead', address: `${east.address}-2`, alive: false },
  ]);
  t.after(() => hosts.close());
  await hosts.ready({ othersMs: FOR_EVER_MS });
  assert.deepEqual(
    hosts.list.map(({ name, connected }) => [name, connected]),
    [
      ['dead', false],
      ['east', true],
      ['taken', false],
    ],
  );
});

test('a connection is tried again when no host says hello before the deadline', async (t) => {
  await using host = await startTestHost();
  const { address } = host;
  // A proxy that forwards nothing on its first connection.
  let connections = 0;
  const proxy = createServer((near) => {
    near.on('error', () => undefined);
    if (connections++ > 0) near.pipe(connect(address).on('error', () => near.destroy())).pipe(near);
  });
  proxy.listen(`${address}-proxy`);
  t.after(() => proxy.close());
  const connection = await GpuHostConnection.connect(`${address}-proxy`, {
    helloMs: 100,
    reconnectMs: { first: 1, longest: 1 },
  });
  t.after(() => connection.close());
  assert.ok(connections > 1);
});

test('an answer with unreadable counters ends the connection and fails the request for counters', async (t) => {
  await using host = await startTestHost();
  const address = `${host.address}-f`;
  const server = createServer((socket) => {
    const writer = new FrameWriter();
    const send = (kind: FrameKind, put: () => void) => {
      writer.begin(kind);
      put();
      writer.end();
      socket.write(writer.take());
    };
    send(FRAME.hello, () =>
      writer.putText(JSON.stringify({ hostId: 'h', processId: 7, version: 1, models: [], encoders: [] })),
    );
    // The first data is the runtime's hello, the second its request for counters.
    socket.once('data', () =>
      socket.once('data', () =>
        send(FRAME.stats, () => {
          writer.put(1);
          writer.putText('no JSON');
        }),
      ),
    );
  }).listen(address);
  t.after(() => server.close());
  const connection = await GpuHostConnection.connect(address);
  t.after(() => connection.close());
  await assert.rejects(connection.stats(), /sent what cannot be read/);
});
