import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuHostConnection, type Outcome } from '#gpu-host/protocol/client.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import { TEST_MODEL, TestGpuHost } from '../testing/gpu-host.ts';
import { TestInferlet } from '../testing/inferlet.ts';
import { Inferlet } from './inferlet.ts';

test('an inferlet compares the end of a quota window with the clock of the platform', () => {
  const { inferlet: template } = new TestInferlet(null);
  const clock = () => Date.now() - 3_600_000;
  const inferlet = new Inferlet({ ...template.description, clock }, template.session, template.services);
  inferlet.tokens.allow({ inputTokens: 0, outputTokens: 0, cachedTokens: 0 }, { left: 0, until: clock() + 60_000 });
  assert.equal(inferlet.refuseTokens(1)?.tag, 'limit-exceeded');
});

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
