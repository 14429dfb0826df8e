import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { RuntimeDescription } from '../runtimes/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { openTestScheduler } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { machineEntry } from './drains.ts';

const BY = { by: 'key_1', force: false };
const hosts = (...names: string[]) => names.map((name) => ({ name, connected: true, models: [] }));

describe('drains', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  before(async () => {
    redis = await TestRedis.start();
  });
  after(() => redis.stop());

  /** Opens a scheduler with one runtime for each machine. */
  async function open(machines: Readonly<Record<string, NonNullable<RuntimeDescription['gpuHosts']>>>) {
    scheduler = openTestScheduler(redis);
    const leases = await Promise.all(
      Object.entries(machines).map(([machine, gpuHosts]) =>
        scheduler.runtimes.acquire({ name: `runtime@${machine}`, machine, slots: 1, gpuHosts }),
      ),
    );
    const close = async () => {
      for (const lease of leases) await lease.release();
      await scheduler.close();
    };
    return { drains: scheduler.drains, [Symbol.asyncDispose]: close };
  }

  test('a machine can be drained while another runtime with a GPU host is left undrained', async () => {
    await using platform = await open({ east: hosts('a', 'b'), west: hosts('b') });
    const { drains } = platform;
    const [east, west] = [
      { name: 'east', gpuHosts: [{ name: 'a' }] },
      { name: 'west', gpuHosts: [{ name: 'b' }] },
    ];
    assert.equal(await drains.drainMachine({ ...east, gpuHosts: hosts('a', 'b') }, BY), 'last', 'no host is left');
    assert.equal(await drains.drainMachine({ name: 'empty', gpuHosts: [] }, BY), 'drained');
    assert.equal(await drains.drainMachine(east, BY), 'drained');
    assert.equal(await drains.drainMachine(east, BY), 'unchanged');
    assert.equal(await drains.drainMachine(west, BY), 'last');
    assert.equal(await drains.drainMachine(west, { ...BY, force: true }), 'drained');
    assert.equal(await drains.undrainMachine(west), true);
    assert.equal(await drains.undrainMachine(west), false);
    assert.deepEqual(await drains.names(), new Set(['a', machineEntry('east'), machineEntry('empty')]));
  });

  test('a GPU host that only a drained machine reaches does not count as left', async () => {
    await using platform = await open({ east: hosts('a'), west: hosts('b') });
    const { drains } = platform;
    // The machine has no GPU host of its own, so `b` itself is not drained.
    assert.equal(await drains.drainMachine({ name: 'west', gpuHosts: [] }, BY), 'drained');
    assert.equal(await drains.drain('a', BY), 'last');
    assert.equal(await drains.drain('b', BY), 'drained', 'the host of a drained machine is known, and `a` is left');
    assert.equal(await drains.undrainMachine({ name: 'west', gpuHosts: hosts('b') }), true);
    assert.equal(await drains.drain('a', BY), 'drained', 'now `b` is left');
    assert.equal(await drains.drain('b', BY), 'last');
    assert.equal(await drains.drain('b', { ...BY, force: true }), 'drained');
  });

  test('a drain and an undrain that the connection sends twice get their first reply', async (t) => {
    await using platform = await open({ east: hosts('a', 'b'), west: hosts('b') });
    const { drains } = platform;
    const { store } = scheduler;
    const script = store.script.bind(store);
    t.mock.method(store, 'script', async (...call: Parameters<typeof script>) => {
      await script(...call);
      return script(...call);
    });
    assert.equal(await drains.drain('a', BY), 'drained');
    assert.equal(await drains.drain('a', BY), 'unchanged');
    assert.equal(await drains.undrain('a'), true);
    assert.equal(await drains.drainMachine({ name: 'east', gpuHosts: [] }, BY), 'drained');
  });
});
