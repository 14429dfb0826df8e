import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuHostConnections } from '#gpu-host/protocol/connections.ts';
import { MACHINE_LEASE_MS, MachineLease } from '#scheduler/machines/lease.ts';
import { eventually, openTestScheduler } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { GpuHostRegistry } from './gpu-host-registry.ts';
import { TestGpuHost } from './testing/gpu-host.ts';

test('a runtime keeps its connections while the registry is away or empty, and learns which hosts live', async (t) => {
  const redis = await TestRedis.start();
  const scheduler = openTestScheduler(redis);
  const host = await TestGpuHost.start();
  t.after(async () => {
    await scheduler.close();
    await host.stop();
    await redis.stop();
  });
  const gpuHosts = [{ name: 'gpu-host-1', address: host.address }];
  const description = { name: 'west', roles: ['gpu-host'], host: 'h', pid: 1, version: '1.0.0', gpuHosts } as const;
  const claim = () =>
    MachineLease.claim(scheduler.store, description, {
      onTaken: () => assert.fail('the name was taken'),
      leaseMs: 600_000,
    });
  const lease = await claim();
  t.after(() => lease.abandon());
  const registry = new GpuHostRegistry(scheduler.machines, { machine: { name: 'west' }, gpuHosts: [], models: [] });
  const hosts = new GpuHostConnections(await registry.hosts(), { keptMs: MACHINE_LEASE_MS });
  await hosts.ready();
  t.after(() => hosts.close());
  const [connection] = hosts.list;
  const read: number[] = [];
  const stop = await registry.follow(
    (changed) => {
      hosts.set(changed);
      read.push(changed.length);
    },
    () => undefined,
  );
  t.after(stop);
  await eventually(() => read.length > 0, 'the registry was read');
  const isSame = () => assert.deepEqual([hosts.list, connection?.connected], [[connection], true]);

  // The server forgets everything.
  await redis.restart();
  await eventually(() => read.at(-1) === 0, 'the registry is empty');
  isSame();
  const returned = await claim();
  t.after(() => returned.abandon());
  await eventually(() => read.at(-1) === 1, 'the machine has registered again');
  isSame();
  const alive = async () => (await registry.hosts()).map((each) => each.alive);
  assert.deepEqual(await alive(), [true]);
  await scheduler.store.redis.del(scheduler.store.keys.machineLease('west'));
  assert.deepEqual(await alive(), [false]);
});
