import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { preference } from '#scheduler/policies/placement.ts';
import { failingLog } from '#scheduler/testing/log.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { Draining, followHosts } from './gpu-hosts.ts';
import { Models } from './models.ts';

test('Draining records for each host when its drain began and ended, by both clocks', () => {
  const draining = new Draining();
  const set = (names: string[], at: number) => draining.set(new Set(names), { at, steadyMs: at / 10 });
  set(['a'], 10);
  set(['a', 'b'], 20);
  assert.deepEqual([draining.of('a'), draining.of('b'), draining.of('c')], [{ since: 10 }, { since: 20 }, undefined]);
  set(['b'], 30);
  set(['b'], 40);
  assert.deepEqual(
    [draining.of('a'), draining.steadyOf('a')],
    [
      { since: 10, until: 30 },
      { since: 1, until: 3 },
    ],
  );
  assert.deepEqual([draining.isDrained('a'), draining.isDrained('b')], [false, true]);
  set(['a'], 50);
  assert.deepEqual([draining.of('a'), draining.of('b')], [{ since: 50 }, { since: 20, until: 50 }]);
});

test('a drained host gets no new invocations after the clock has stepped back', async (t) => {
  const names = ['gpu-host-1', 'gpu-host-2'];
  const list = await Promise.all(
    names.map(async (name) => {
      const host = await TestGpuHost.start({ name });
      t.after(() => host.stop());
      const connection = await GpuHostConnection.connect(host.address, { name });
      t.after(() => connection.close());
      return connection;
    }),
  );
  const key = 'default';
  const [first, second] = preference(key, names).map((at) => names[at]);
  const drained = new Set<string>();
  const draining = new Draining();
  const models = new Models({ list }, { compile: () => assert.fail('no grammar is compiled') }, failingLog, draining);
  const placed = async (placedAtMs?: number) =>
    (await models.granted([], key, placedAtMs)).get(TEST_MODEL)?.connection.name;

  const begunMs = performance.now();
  assert.equal(await placed(), first);
  const now = Date.now();
  t.mock.timers.enable({ apis: ['Date'], now: now + 3_600_000 });
  drained.add(first ?? assert.fail());
  const stop = await followHosts({
    hosts: { list, onChange: () => () => undefined },
    draining,
    drains: { names: async () => drained, onChange: async () => () => undefined },
    worker: { pause: async () => undefined },
    describe: async () => undefined,
    log: failingLog,
  });
  stop();
  t.mock.timers.setTime(now + 5000);
  assert.equal(await placed(), second);
  assert.equal(await placed(begunMs), first, 'children of an invocation from before the drain stay on its host');
});
