import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { randomEncoder } from '#gpu-host/models/testing/random-encoder.ts';
import { randomModel } from '#gpu-host/models/testing/random-model.ts';
import { GpuHostConnections } from '#gpu-host/protocol/connections.ts';
import { MACHINE_LEASE_MS, MachineLease } from '#scheduler/machines/lease.ts';
import { eventually, openTestScheduler } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
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
      log: silentLog,
      leaseMs: 600_000,
    });
  const lease = await claim();
  t.after(() => lease.abandon());
  const registry = new GpuHostRegistry(scheduler.machines, {
    machine: { name: 'west' },
    gpuHosts: [],
    models: [],
    encoders: [],
  });
  const hosts = new GpuHostConnections(await registry.hosts(), { keptMs: MACHINE_LEASE_MS });
  await hosts.ready();
  t.after(() => hosts.close());
  const [connection] = hosts.list;
  const hostCounts: number[] = [];
  const stop = await registry.follow((changed) => {
    hosts.set(changed);
    hostCounts.push(changed.length);
  }, silentLog);
  t.after(stop);
  await eventually(() => hostCounts.length > 0, 'the registry was read');
  const assertSameConnection = () => assert.deepEqual([hosts.list, connection?.connected], [[connection], true]);

  // Redis loses all its data.
  await redis.restart();
  await eventually(() => hostCounts.at(-1) === 0, 'the registry is empty');
  assertSameConnection();
  const newLease = await claim();
  t.after(() => newLease.abandon());
  await eventually(() => hostCounts.at(-1) === 1, 'the machine has registered again');
  assertSameConnection();
  const readAlive = async () => (await registry.hosts()).map((each) => each.alive);
  assert.deepEqual(await readAlive(), [true]);
  await scheduler.store.redis.del(scheduler.store.keys.machineLease('west'));
  assert.deepEqual(await readAlive(), [false]);
});

test("a host of another machine comes with the directories of this machine's models and encoders", async (t) => {
  const redis = await TestRedis.start();
  const scheduler = openTestScheduler(redis);
  const directory = await mkdtemp(join(tmpdir(), 'pie-registry-'));
  t.after(async () => {
    await scheduler.close();
    await redis.stop();
    await rm(directory, { recursive: true, force: true });
  });
  const [model, encoder] = [join(directory, 'model'), join(directory, 'encoder')];
  await randomModel(model, {}, 7);
  await randomEncoder(encoder, { kind: 'embedding' }, 7);
  const gpuHosts = [{ name: 'gpu-host-1@east', address: '10.0.0.5:7400' }];
  const description = { name: 'east', roles: ['gpu-host'], host: 'h', pid: 1, version: '1.0.0', gpuHosts } as const;
  const lease = await MachineLease.claim(scheduler.store, description, {
    onTaken: () => assert.fail('the name was taken'),
    log: silentLog,
    leaseMs: 600_000,
  });
  t.after(() => lease.abandon());
  const registry = new GpuHostRegistry(scheduler.machines, {
    machine: { name: 'west' },
    gpuHosts: [],
    models: [{ name: 'tiny', source: `file:${model}` }],
    encoders: [{ name: 'small', source: `file:${encoder}` }],
  });
  const [host] = await registry.hosts();
  assert.deepEqual(
    [...(host?.directories ?? [])],
    [
      ['tiny', model],
      ['small', encoder],
    ],
  );
});
