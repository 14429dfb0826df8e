import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Imported } from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection, type Outcome } from '#gpu-host/protocol/client.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';

test('an inferlet reports only those lost GPU hosts that it had used', async (t) => {
  const hosts = await Promise.all([TestGpuHost.start(), TestGpuHost.start()]);
  for (const host of hosts) t.after(() => host.stop());
  const [used, unused] = await Promise.all(hosts.map(({ address }) => GpuHostConnection.connect(address)));
  assert.ok(used && unused);
  for (const connection of [used, unused]) t.after(() => connection.close());
  const guest = new TestInferlet(used);
  const granted = guest.inferlet.description.models as Map<string, unknown>;
  granted.set('other', { ...guest.inferlet.description.models.get(TEST_MODEL), connection: unused });
  guest.inferlet.takePlaces();
  guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 1);
  await guest.queue.settle();
  assert.deepEqual([guest.inferlet.lostDevice, guest.inferlet.lostConnections], [undefined, []]);
  await Promise.all(hosts.map((host) => host.kill()));
  await eventually(() => !used.connected && !unused.connected, 'both hosts are lost');
  assert.match(guest.inferlet.lostDevice ?? '', /GPU host/);
  assert.deepEqual(guest.inferlet.lostConnections, [used]);
  await guest.end();
});

test("an inferlet's peak counts the pages that it allocates and imports, and a page that it shares once", async (t) => {
  const host = await TestGpuHost.start();
  t.after(() => host.stop());
  const connection = await GpuHostConnection.connect(host.address);
  t.after(() => connection.close());
  const guest = new TestInferlet(connection);
  const call = <T>(name: string, ...args: readonly unknown[]) => guest.call<T>('allocate', name, guest.queue, ...args);
  const peak = () => guest.inferlet.pagesPeak.get(TEST_MODEL);
  const ownPages = value(call<Outcome<Uint32Array>>('allocate-pages', 2));
  assert.equal(peak(), 2);
  const sharedPages = value(call<Outcome<Uint32Array>>('share-pages', ownPages));
  assert.equal(peak(), 2);
  value(await call<Promise<Outcome<undefined>>>('export-pages', ownPages, 'e', false));
  const imported = value(await call<Promise<Outcome<Imported>>>('import-pages', 'e'));
  assert.equal(peak(), 4);
  for (const pages of [ownPages, sharedPages, imported.pages]) call('free-pages', pages);
  value(call<Outcome<Uint32Array>>('allocate-pages', 1));
  assert.deepEqual([guest.inferlet.heldPages()[TEST_MODEL], peak()], [1, 4]);
  await guest.end();
});
